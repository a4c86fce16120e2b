# The C++ program of `bench/run ddp`. It exists only if the SDK is built.
if(MUSTER_SDK_BUILT)
  add_executable(ddp_steps ${CMAKE_CURRENT_LIST_DIR}/ddp_steps.cc)
  target_link_libraries(ddp_steps PRIVATE muster_options muster_torch_options muster::worker)
  set_target_properties(ddp_steps PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_dependencies(bench_programs ddp_steps)
endif()
