# muster_find_torch(PREFIX): finds LibTorch and adds the target muster::torch. Sets muster_torch_FOUND.
# If LibTorch is found, also sets muster_torch_VERSION and muster_torch_CUDA (whether it has NCCL).
# Otherwise sets muster_torch_WHY_NOT.
#
# PREFIX: a folder with include/ and lib/ of torch: a LibTorch archive, or the torch package of a Python
# environment. This function uses paths and not Torch's own CMake package. That package needs the CUDA
# toolkit if torch has CUDA, although the SDK compiles nothing for GPUs.
function(muster_find_torch prefix)
  set(muster_torch_FOUND FALSE PARENT_SCOPE)
  set(version_file ${prefix}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${version_file})
    set(version_file ${prefix}/include/torch/csrc/api/include/torch/version.h)
  endif()
  if(NOT EXISTS ${version_file} OR NOT EXISTS ${prefix}/lib/libtorch_cpu.so)
    set(muster_torch_WHY_NOT "no LibTorch in ${prefix}" PARENT_SCOPE)
    return()
  endif()
  if(NOT EXISTS ${prefix}/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp)
    set(muster_torch_WHY_NOT "the LibTorch in ${prefix} is built without torch.distributed" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${version_file} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" version "${version_lines}")
  if(version VERSION_LESS 2.11)
    set(muster_torch_WHY_NOT "torch ${version} in ${prefix}: 2.11 or later is needed" PARENT_SCOPE)
    return()
  endif()

  # PyTorch's wheels have Gloo, but not its headers. The headers of Debian's libgloo-dev serve instead:
  # c10d's headers only use pointers to Gloo's types. The Gloo that runs is the one inside the wheel.
  find_path(MUSTER_GLOO_INCLUDE_DIR gloo/context.h HINTS ${prefix}/include)
  if(NOT MUSTER_GLOO_INCLUDE_DIR)
    set(muster_torch_WHY_NOT "Gloo's headers are missing (Debian: libgloo-dev)" PARENT_SCOPE)
    return()
  endif()

  set(libraries ${prefix}/lib/libtorch_cpu.so ${prefix}/lib/libc10.so)
  set(cuda FALSE)
  if(EXISTS ${prefix}/lib/libtorch_cuda.so)
    set(cuda TRUE)
    list(PREPEND libraries ${prefix}/lib/libtorch_cuda.so ${prefix}/lib/libc10_cuda.so)
    # nccl.h and CUDA's headers come from the wheels on which a CUDA torch depends, or from the system. CUDA's
    # headers include those of its compiler and of CCCL, which are in wheels on which not every torch depends.
    get_filename_component(site_packages ${prefix} DIRECTORY)
    file(GLOB cuda_folders ${site_packages}/nvidia/*/include ${site_packages}/nvidia/include)
    find_path(MUSTER_NCCL_INCLUDE_DIR nccl.h HINTS ${cuda_folders})
    find_path(MUSTER_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${cuda_folders} /usr/local/cuda/include)
    find_path(MUSTER_CUDA_CRT_INCLUDE_DIR crt/host_config.h HINTS ${cuda_folders} /usr/local/cuda/include)
    find_path(MUSTER_CUDA_CCCL_INCLUDE_DIR nv/target HINTS ${cuda_folders} /usr/local/cuda/include PATH_SUFFIXES cccl)
    set(missing)
    if(NOT MUSTER_NCCL_INCLUDE_DIR)
      list(APPEND missing "nccl.h (pip: nvidia-nccl-cu13)")
    endif()
    if(NOT MUSTER_CUDA_INCLUDE_DIR)
      list(APPEND missing "cuda_runtime_api.h (pip: nvidia-cuda-runtime)")
    endif()
    if(NOT MUSTER_CUDA_CRT_INCLUDE_DIR)
      list(APPEND missing "crt/host_config.h (pip: nvidia-cuda-crt)")
    endif()
    if(NOT MUSTER_CUDA_CCCL_INCLUDE_DIR)
      list(APPEND missing "nv/target (pip: nvidia-cuda-cccl)")
    endif()
    if(missing)
      list(JOIN missing ", " missing)
      message(STATUS "muster: torch has CUDA, but headers are missing: ${missing}: no NCCL in the SDK")
      set(cuda FALSE)
    endif()
  endif()

  if(NOT TARGET muster::torch)
    add_library(muster::torch INTERFACE IMPORTED GLOBAL)
    target_include_directories(muster::torch SYSTEM INTERFACE
      ${prefix}/include ${prefix}/include/torch/csrc/api/include ${MUSTER_GLOO_INCLUDE_DIR})
    target_compile_definitions(muster::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
    # libtorch_cuda registers its kernels when it is loaded. The linker must keep it even if the program
    # uses none of its symbols.
    target_link_libraries(muster::torch INTERFACE -Wl,--no-as-needed ${libraries} -Wl,--as-needed)
    target_link_options(muster::torch INTERFACE -Wl,-rpath,${prefix}/lib)
    if(cuda)
      target_include_directories(muster::torch SYSTEM INTERFACE
        ${MUSTER_NCCL_INCLUDE_DIR} ${MUSTER_CUDA_INCLUDE_DIR} ${MUSTER_CUDA_CRT_INCLUDE_DIR}
        ${MUSTER_CUDA_CCCL_INCLUDE_DIR} ${cuda_folders})
      target_compile_definitions(muster::torch INTERFACE USE_C10D_NCCL)
    endif()
  endif()
  set(muster_torch_FOUND TRUE PARENT_SCOPE)
  set(muster_torch_VERSION ${version} PARENT_SCOPE)
  set(muster_torch_CUDA ${cuda} PARENT_SCOPE)
endfunction()
