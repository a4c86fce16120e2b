# CMake's toolchain file of the portable build, for MUSTER_ARCH: its programs need glibc 2.17 and no other library.
# `scripts/package --prepare` installs the compiler and makes the sysroot first.
set(MUSTER_ARCH x86_64 CACHE STRING "The architecture of the portable build: x86_64 or aarch64")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MUSTER_ARCH)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MUSTER_ARCH})
set(CMAKE_LIBRARY_ARCHITECTURE ${MUSTER_ARCH}-linux-gnu)

get_filename_component(muster_source ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(muster_sysroot ${muster_source}/build/portable-sysroot/${MUSTER_ARCH})
if(NOT EXISTS ${muster_sysroot}/usr/include)
  message(FATAL_ERROR "muster: there is no folder ${muster_sysroot}. Run scripts/package --prepare first.")
endif()

# 2.17 is the oldest glibc that the programs run on.
set(CMAKE_C_COMPILER_TARGET ${CMAKE_LIBRARY_ARCHITECTURE}.2.17)
set(CMAKE_CXX_COMPILER_TARGET ${CMAKE_LIBRARY_ARCHITECTURE}.2.17)
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/cc)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/c++)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${CMAKE_CURRENT_LIST_DIR}/zig/ranlib CACHE FILEPATH "")
# zig has no strip. binutils' strip works on programs of its own architecture only.
find_program(CMAKE_STRIP NAMES ${CMAKE_LIBRARY_ARCHITECTURE}-strip strip)

# CMake finds headers, libraries and packages in the sysroot only, and programs on this machine only.
set(CMAKE_FIND_ROOT_PATH ${muster_sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# hwloc's config.h is in Debian's include folder for one architecture, which is not among zig's own folders.
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${muster_sysroot}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE})

# The prefix maps keep the paths of this machine out of the programs, so their bytes do not depend on the folder.
# -g0: without this option, the compiler adds debug information.
set(muster_flags "-g0 -fPIE -fstack-protector-strong -ffunction-sections -fdata-sections")
string(APPEND muster_flags " -ffile-prefix-map=${muster_sysroot}/usr=/usr -ffile-prefix-map=${muster_source}=.")
# The same for ccache, which gives the compiler the paths from the build folder on.
string(APPEND muster_flags " -ffile-prefix-map=../portable-sysroot/${MUSTER_ARCH}/usr=/usr -ffile-prefix-map=../..=.")
set(CMAKE_C_FLAGS_INIT "${muster_flags}")
set(CMAKE_CXX_FLAGS_INIT "${muster_flags}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie -Wl,-z,relro,-z,now -Wl,--gc-sections")
