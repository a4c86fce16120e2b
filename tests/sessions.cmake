# Tests of a node among torchrun nodes: its decisions alone, in a simulated crowd, and with the real
# torch.
muster_add_tests(c10d_participant_tests unit
  SOURCES
    unit/rendezvous/c10d_participant_test.cc
    unit/rendezvous/c10d_participant_spares_test.cc
  LINK muster_rendezvous_core)
muster_add_tests(c10d_participant_simulation simulation
  SOURCES
    simulation/c10d_participant_simulation.cc
    support/torch_model.cc
  LINK muster_rendezvous_wire)
muster_add_tests(agent_sessions_core_tests unit
  SOURCES
    unit/agent/answer_patience_test.cc
    unit/agent/host_match_test.cc
    unit/agent/known_host_test.cc
    unit/agent/rank_messages_test.cc
  LINK muster_agent_core)
muster_add_tests(round_exchange_tests conformance
  SOURCES conformance/sessions/round_exchange_test.cc
  LINK muster_agent_io)
muster_add_tests(store_thread_tests threads
  SOURCES conformance/sessions/store_thread_test.cc
  LINK muster_agent_io)
if(CMAKE_CXX_FLAGS MATCHES "fsanitize=[a-z,]*undefined")
  target_compile_definitions(store_thread_tests PRIVATE MUSTER_WITH_UBSAN)
endif()

# Tests with real torchrun nodes; without torch they are skipped and say so.
add_executable(session_driver conformance/sessions/session_driver.cc)
set_target_properties(session_driver PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(session_driver
  PRIVATE muster_test_options muster_agent_io muster_spdlog nlohmann_json::nlohmann_json)
set(sessions ${CMAKE_CURRENT_SOURCE_DIR}/conformance/sessions)
foreach(test c10d.1 c10d.2 static adversity hosts lost_writes)
  string(REGEX REPLACE "[.].*" "" file ${test})
  add_test(NAME session_${test}
    COMMAND ${MUSTER_TORCH_PYTHON} ${sessions}/${file}_test.py $<TARGET_FILE:session_driver>)
  set_tests_properties(session_${test} PROPERTIES
    LABELS conformance TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()
set_tests_properties(session_c10d.1 PROPERTIES ENVIRONMENT "MUSTER_SHARD=1/2")
set_tests_properties(session_c10d.2 PROPERTIES ENVIRONMENT "MUSTER_SHARD=2/2")
