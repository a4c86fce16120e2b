# The portable build: programs that need glibc 2.17 and nothing else, for x86_64 or aarch64.
# MUSTER_ARCH names which. `scripts/package --prepare` installs the compiler and makes the sysroot first.
set(MUSTER_ARCH x86_64 CACHE STRING "What the portable build is for: x86_64 or aarch64")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MUSTER_ARCH)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MUSTER_ARCH})
set(CMAKE_LIBRARY_ARCHITECTURE ${MUSTER_ARCH}-linux-gnu)

get_filename_component(muster_source ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(muster_sysroot ${muster_source}/build/portable-sysroot/${MUSTER_ARCH})
if(NOT EXISTS ${muster_sysroot}/usr/include)
  message(FATAL_ERROR "muster: ${muster_sysroot} is not there. Run scripts/package --prepare first.")
endif()

# The number is the oldest glibc that the programs run on.
set(CMAKE_C_COMPILER_TARGET ${CMAKE_LIBRARY_ARCHITECTURE}.2.17)
set(CMAKE_CXX_COMPILER_TARGET ${CMAKE_LIBRARY_ARCHITECTURE}.2.17)
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/cc)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/c++)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${CMAKE_CURRENT_LIST_DIR}/zig/ranlib CACHE FILEPATH "")
# zig has no strip, and the machine's own knows only the machine's own programs.
find_program(CMAKE_STRIP NAMES ${CMAKE_LIBRARY_ARCHITECTURE}-strip strip)

# Headers and CMake packages come from the sysroot only, programs from the machine only.
set(CMAKE_FIND_ROOT_PATH ${muster_sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# hwloc's config.h is in the folder for one architecture, which this compiler does not know of.
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${muster_sysroot}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE})

# The same bytes from whatever folder: no path of this machine is in the programs.
# -g0: without it this compiler adds debug information to everything.
set(muster_flags "-g0 -fPIE -fstack-protector-strong -ffunction-sections -fdata-sections")
string(APPEND muster_flags " -ffile-prefix-map=${muster_sysroot}/usr=/usr -ffile-prefix-map=${muster_source}=.")
set(CMAKE_C_FLAGS_INIT "${muster_flags}")
set(CMAKE_CXX_FLAGS_INIT "${muster_flags}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie -Wl,-z,relro,-z,now -Wl,--gc-sections")
