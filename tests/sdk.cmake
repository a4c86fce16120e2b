# The worker SDK: the part without LibTorch is always tested, the rest where the SDK is built.
muster_add_tests(sdk_env_tests unit
  SOURCES unit/worker_sdk/environment_test.cc unit/worker_sdk/notice_lines_test.cc
  LINK muster::worker_env)
target_include_directories(sdk_env_tests PRIVATE ${PROJECT_SOURCE_DIR}/worker_sdk/src)

# Which NCCL backend the SDK makes is decided without LibTorch, so this is also tested without it.
muster_add_tests(sdk_nccl_choice_tests unit
  SOURCES
    ${PROJECT_SOURCE_DIR}/worker_sdk/src/nccl_choice.cc
    unit/worker_sdk/nccl_choice_test.cc
  LINK muster_options)
target_include_directories(sdk_nccl_choice_tests PRIVATE ${PROJECT_SOURCE_DIR}/worker_sdk/src)

# CMake's search for LibTorch and for NCCL's headers, in folders that look like those of its wheels.
add_test(NAME sdk_find_torch
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/find_torch_test.py
    ${PROJECT_SOURCE_DIR}/worker_sdk/cmake/MusterTorch.cmake)
set_tests_properties(sdk_find_torch PROPERTIES LABELS conformance TIMEOUT 120)

# The SDK's rules for pickles need no LibTorch, so they are also tested without it.
muster_add_tests(sdk_pickle_tests unit
  SOURCES
    ${PROJECT_SOURCE_DIR}/worker_sdk/src/pickle_rules.cc
    unit/worker_sdk/pickle_rules_test.cc
  LINK muster_pickle)
target_include_directories(sdk_pickle_tests PRIVATE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/worker_sdk/src)

# A separate program, because it fails on purpose in every way.
add_executable(sdk_record_probe conformance/sdk/record_probe.cc)
set_target_properties(sdk_record_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
  ENABLE_EXPORTS ON)  # Functions in its stacks have names.
target_link_libraries(sdk_record_probe PRIVATE muster_test_options muster::worker_env ${CMAKE_DL_LIBS})
add_library(sdk_slow_library MODULE conformance/sdk/slow_library.cc)
target_link_libraries(sdk_slow_library PRIVATE muster_test_options)
set_target_properties(sdk_slow_library PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME sdk_record
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/record_test.py
    $<TARGET_FILE:sdk_record_probe> $<TARGET_FILE:sdk_slow_library>)
set_tests_properties(sdk_record PROPERTIES LABELS conformance TIMEOUT 120)

# Both ends of the worker channel.
add_executable(sdk_channel_probe conformance/sdk/channel_probe.cc)
set_target_properties(sdk_channel_probe PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
  ENABLE_EXPORTS ON)  # Functions in its stacks have names.
target_link_libraries(sdk_channel_probe PRIVATE
  muster_test_options muster_agent_channel muster_spdlog muster::worker_env)
add_test(NAME sdk_channel
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/channel_test.py
    $<TARGET_FILE:sdk_channel_probe> ${PROJECT_SOURCE_DIR}/docs/worker_channel.md)
set_tests_properties(sdk_channel PROPERTIES LABELS conformance TIMEOUT 120)

# The same tests under the real launcher.
add_test(NAME sdk_muster
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/muster_test.py
    $<TARGET_FILE:muster> $<TARGET_FILE:sdk_channel_probe>
    ${PROJECT_SOURCE_DIR}/docs/worker_channel.md)
set_tests_properties(sdk_muster PROPERTIES LABELS conformance TIMEOUT 300)

add_subdirectory(${PROJECT_SOURCE_DIR}/examples ${CMAKE_BINARY_DIR}/examples_build)

if(MUSTER_SDK_BUILT)
  add_executable(sdk_ranks
    conformance/sdk/ranks.cc conformance/sdk/ranks_checkpoint.cc
    conformance/sdk/ranks_collectives.cc conformance/sdk/ranks_complex.cc
    conformance/sdk/ranks_ddp.cc conformance/sdk/ranks_extra.cc)
  add_executable(sdk_tools conformance/sdk/tools.cc)
  add_subdirectory(gpu)
  foreach(program sdk_ranks sdk_tools)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(${program} PRIVATE muster_test_options muster::worker)
    muster_share_torch_headers(${program})
  endforeach()

  # Without torch these tests are skipped and say so: the script checks that.
  add_test(NAME sdk_conformance
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/sdk_test.py
      --build ${CMAKE_BINARY_DIR} --source ${PROJECT_SOURCE_DIR})
  set_tests_properties(sdk_conformance PROPERTIES LABELS conformance TIMEOUT 1200 SKIP_RETURN_CODE 77)
  add_test(NAME sdk_failures
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/failures_test.py
      --build ${CMAKE_BINARY_DIR} --source ${PROJECT_SOURCE_DIR})
  set_tests_properties(sdk_failures PROPERTIES LABELS conformance TIMEOUT 900 SKIP_RETURN_CODE 77)
  add_test(NAME sdk_consumer
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/consumer_test.py
      --build ${CMAKE_BINARY_DIR} --source ${PROJECT_SOURCE_DIR})
  set_tests_properties(sdk_consumer PROPERTIES LABELS conformance TIMEOUT 900)

  add_test(NAME sdk_examples
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sdk/examples_test.py
      --build ${CMAKE_BINARY_DIR} --source ${PROJECT_SOURCE_DIR})
  set_tests_properties(sdk_examples PROPERTIES LABELS conformance TIMEOUT 1800 SKIP_RETURN_CODE 77)
endif()
