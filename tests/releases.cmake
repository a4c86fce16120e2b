# muster against the releases of PyTorch whose facts are committed (scripts/torch_release). Needs no torch.
add_executable(muster_facts conformance/releases/muster_facts.cc
  ${PROJECT_SOURCE_DIR}/worker_sdk/src/nccl_choice.cc)
set_target_properties(muster_facts PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(muster_facts PRIVATE
  muster_test_options muster_launcher muster_agent_core muster_rendezvous_core nlohmann_json::nlohmann_json)
add_test(NAME torch_releases
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/conformance/releases/releases_test.py
    ${CMAKE_BINARY_DIR}/tests ${PROJECT_SOURCE_DIR})
set_tests_properties(torch_releases PROPERTIES LABELS conformance TIMEOUT 120)
