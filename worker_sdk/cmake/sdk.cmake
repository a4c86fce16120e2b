# Adds muster::worker if LibTorch is found.
if(MUSTER_SDK STREQUAL OFF)
  return()
endif()
set(torch_prefix ${MUSTER_TORCH})
if(NOT torch_prefix)
  file(GLOB torch_folders ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(torch_folders)
    list(GET torch_folders -1 torch_prefix)
  endif()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/MusterTorch.cmake)
set(muster_torch_FOUND FALSE)
set(muster_torch_WHY_NOT "no torch in ${PROJECT_SOURCE_DIR}/.venv; name its folder with -DMUSTER_TORCH=")
if(torch_prefix)
  muster_find_torch(${torch_prefix})
endif()
if(NOT muster_torch_FOUND)
  if(NOT MUSTER_SDK STREQUAL AUTO)
    message(FATAL_ERROR "MUSTER_SDK=${MUSTER_SDK}: ${muster_torch_WHY_NOT}")
  elseif(torch_prefix)
    message(STATUS "muster: without the SDK on LibTorch: ${muster_torch_WHY_NOT}")
  endif()
  return()
endif()
message(STATUS "muster: SDK on torch ${muster_torch_VERSION} in ${torch_prefix}, NCCL: ${muster_torch_CUDA}")
set(MUSTER_SDK_BUILT ON CACHE INTERNAL "Whether muster::worker is built")

add_library(muster_worker STATIC
  src/backends.cc
  src/checkpoint.cc
  src/checkpoint_file.cc
  src/checkpoint_folder.cc
  src/checkpoint_stream.cc
  src/checkpoint_wait.cc
  src/collectives.cc
  src/ddp_hooks.cc
  src/distributed_data_parallel.cc
  src/distributed_sampler.cc
  src/module_state.cc
  src/named_gloo.cc
  src/nccl_choice.cc
  src/optimizer_state.cc
  src/pickle_reader.cc
  src/pickle_rules.cc
  src/pickle_values.cc
  src/pickle_writer.cc
  src/print.cc
  src/process_group.cc
  src/torch_versions.cc
  $<IF:$<BOOL:${muster_torch_CUDA}>,src/nccl_backend.cc,src/nccl_missing.cc>)
# The pickle reader becomes a part of this library, so that a program has to link only muster::worker.
target_sources(muster_worker PRIVATE $<TARGET_OBJECTS:muster_pickle>)
set_source_files_properties(src/pickle_reader.cc src/pickle_rules.cc src/pickle_values.cc src/pickle_writer.cc
  PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR})
add_library(muster::worker ALIAS muster_worker)
set_target_properties(muster_worker PROPERTIES EXPORT_NAME worker POSITION_INDEPENDENT_CODE ON)
target_link_libraries(muster_worker PUBLIC muster_worker_env muster::torch
  PRIVATE $<BUILD_INTERFACE:muster_options> $<BUILD_INTERFACE:muster_torch_options>)
