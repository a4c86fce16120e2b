# The rendezvous: unit tests, recorded states of torch, torch itself, and the seeded simulation.
set(rendezvous_goldens ${CMAKE_CURRENT_SOURCE_DIR}/conformance/rendezvous)

muster_add_tests(state_golden_tests conformance
  SOURCES
    conformance/rendezvous/golden_test.cc
    conformance/rendezvous/live_replay_test.cc
  LINK muster_rendezvous_service nlohmann_json::nlohmann_json)
target_compile_definitions(state_golden_tests PRIVATE
  MUSTER_RENDEZVOUS_GOLDENS="${rendezvous_goldens}")

add_executable(state_tool conformance/rendezvous/state_tool.cc)
set_target_properties(state_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(state_tool PRIVATE
  muster_test_options muster_rendezvous_service nlohmann_json::nlohmann_json)

# Without torch these tests are skipped and say so.
set(rendezvous_python ${Python3_EXECUTABLE})
if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(rendezvous_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
add_test(NAME state_against_torch
  COMMAND ${rendezvous_python} ${rendezvous_goldens}/state_against_torch.py $<TARGET_FILE:state_tool>)
set_tests_properties(state_against_torch PROPERTIES LABELS conformance TIMEOUT 300 SKIP_RETURN_CODE 77)

add_test(NAME rendezvous_handlers
  COMMAND ${rendezvous_python} ${rendezvous_goldens}/handlers_test.py $<TARGET_FILE:musterd>)
set_tests_properties(rendezvous_handlers PROPERTIES LABELS conformance TIMEOUT 300 SKIP_RETURN_CODE 77)

muster_add_tests(rendezvous_simulation simulation
  SOURCES
    simulation/rendezvous_counts.cc
    simulation/rendezvous_network.cc
    simulation/rendezvous_nodes.cc
    simulation/rendezvous_simulation.cc
    simulation/rendezvous_world.cc
    support/torch_model.cc
  LINK muster_rendezvous_service)

muster_add_tests(run_service_simulation simulation
  SOURCES simulation/run_service_simulation.cc
  LINK muster_rendezvous_service)

muster_add_tests(native_simulation simulation
  SOURCES
    simulation/failure_simulation.cc
    simulation/native_cluster.cc
    simulation/native_simulation.cc
  LINK muster_rendezvous_service)

muster_add_tests(meeting_simulation simulation
  SOURCES
    simulation/c10d_door.cc
    simulation/meeting_simulation.cc
    simulation/native_cluster.cc
    simulation/shapes_simulation.cc
    support/torch_model.cc
  LINK muster_rendezvous_service)

muster_add_tests(rendezvous_tests unit
  SOURCES
    support/torch_model.cc
    unit/rendezvous/config_json_test.cc
    unit/rendezvous/commands_test.cc
    unit/rendezvous/damping_test.cc
    unit/rendezvous/kept_out_test.cc
    unit/rendezvous/native_codec_test.cc
    unit/rendezvous/late_failure_test.cc
    unit/rendezvous/native_participant_limits_test.cc
    unit/rendezvous/native_participant_test.cc
    unit/rendezvous/native_participant_texts_test.cc
    unit/rendezvous/printable_text_test.cc
    unit/rendezvous/reply_reader_test.cc
    unit/rendezvous/rendezvous_c10d_test.cc
    unit/rendezvous/rendezvous_ends_test.cc
    unit/rendezvous/rendezvous_faults_test.cc
    unit/rendezvous/rendezvous_limits_test.cc
    unit/rendezvous/rendezvous_parts_test.cc
    unit/rendezvous/rendezvous_resume_test.cc
    unit/rendezvous/rendezvous_return_test.cc
    unit/rendezvous/rendezvous_silence_test.cc
    unit/rendezvous/rendezvous_test.cc
    unit/rendezvous/rendezvous_unseen_test.cc
    unit/rendezvous/run_accounts_test.cc
    unit/rendezvous/run_history_test.cc
    unit/rendezvous/run_keys_test.cc
    unit/rendezvous/run_phase_test.cc
    unit/rendezvous/run_record_test.cc
    unit/rendezvous/run_recording_disk_test.cc
    unit/rendezvous/run_recording_test.cc
    unit/rendezvous/run_restart_test.cc
    unit/rendezvous/run_service_costs_test.cc
    unit/rendezvous/run_service_end_test.cc
    unit/rendezvous/run_service_faults_test.cc
    unit/rendezvous/run_service_mixed_test.cc
    unit/rendezvous/run_service_test.cc
    unit/rendezvous/run_view_test.cc
    unit/rendezvous/state_codec_test.cc
    unit/rendezvous/state_key_test.cc
    unit/rendezvous/run_tokens_test.cc
    unit/rendezvous/time_text_test.cc
    unit/rendezvous/token_proof_test.cc
    unit/rendezvous/torchrun_view_test.cc
  LINK muster_rendezvous_service nlohmann_json::nlohmann_json)

muster_add_tests(node_report_tests unit
  SOURCES unit/rendezvous/node_report_test.cc
  LINK muster_rendezvous_service nlohmann_json::nlohmann_json)

muster_add_tests(http_unit_tests unit
  SOURCES
    unit/http/http_access_test.cc
    unit/http/http_metrics_test.cc
    unit/http/http_readiness_test.cc
    unit/http/http_route_test.cc
  LINK muster_rendezvous_http_core)
muster_add_tests(log_console_tests threads
  SOURCES unit/rendezvous/console_log_sink_test.cc unit/rendezvous/log_console_test.cc
  LINK muster_log_console)
muster_add_tests(view_source_tests threads
  SOURCES conformance/http_places_test.cc conformance/view_source_test.cc
  LINK muster_rendezvous_http)
add_test(NAME http_server
  COMMAND ${rendezvous_python} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/http_test.py)
set_tests_properties(http_server PROPERTIES LABELS nodes TIMEOUT 300 SKIP_RETURN_CODE 77
  ENVIRONMENT "MUSTER_BIN=$<TARGET_FILE:muster>;MUSTERD_BIN=$<TARGET_FILE:musterd>;PYTHONDONTWRITEBYTECODE=1")
foreach(name http_token openapi)
  add_test(NAME e2e.${name}
    COMMAND ${rendezvous_python} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/${name}_test.py)
  set_tests_properties(e2e.${name} PROPERTIES LABELS nodes TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "MUSTER_BIN=$<TARGET_FILE:muster>;MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>;PYTHONDONTWRITEBYTECODE=1")
endforeach()
muster_add_tests(rendezvous_access_tests unit
  SOURCES
    unit/rendezvous/c10d_allow_test.cc
    unit/rendezvous/cgroup_limits_test.cc
    unit/rendezvous/tls_allow_test.cc
    unit/rendezvous/token_file_test.cc
  LINK muster_rendezvous_net muster_cgroup_limits)
if(MUSTER_OPENSSL)
  target_compile_definitions(rendezvous_access_tests PRIVATE MUSTER_OPENSSL)
endif()
if(MUSTER_OPENSSL)
  muster_add_tests(tls_unit_tests unit
    SOURCES
      unit/rendezvous/tls_engine_test.cc
      unit/rendezvous/tls_flood_test.cc
    LINK muster_rendezvous_tls)
  muster_add_tests(tls_pump_tests threads
    SOURCES conformance/rendezvous/tls_pump_test.cc
    LINK muster_rendezvous_tls)
  foreach(name tls_unit_tests tls_pump_tests)
    target_compile_definitions(${name} PRIVATE MUSTER_PYTHON="${Python3_EXECUTABLE}"
      MUSTER_CERTIFICATES="${CMAKE_CURRENT_SOURCE_DIR}/support/certificates.py")
  endforeach()
endif()
add_test(NAME http_page
  COMMAND ${rendezvous_python} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/page_test.py)
# A browser uses a whole core.
set_tests_properties(http_page PROPERTIES LABELS nodes TIMEOUT 600 SKIP_RETURN_CODE 77 COST 60
  ENVIRONMENT "MUSTER_BIN=$<TARGET_FILE:muster>;MUSTERD_BIN=$<TARGET_FILE:musterd>;PYTHONDONTWRITEBYTECODE=1")

muster_add_tests(rendezvous_door_tests threads
  SOURCES
    conformance/rendezvous/door_faults_test.cc
    conformance/rendezvous/doors_test.cc
    conformance/rendezvous/native_client_test.cc
  LINK muster_rendezvous_net)

add_executable(state_codec_fuzz fuzz/state_codec_fuzz.cc)
set_target_properties(state_codec_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(state_codec_fuzz PRIVATE muster_test_options muster_rendezvous_wire)
add_test(NAME state_codec_fuzz COMMAND state_codec_fuzz ${rendezvous_goldens} 20000)
set_tests_properties(state_codec_fuzz PROPERTIES LABELS fuzz TIMEOUT 300)

add_executable(config_json_fuzz fuzz/config_json_fuzz.cc)
set_target_properties(config_json_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(config_json_fuzz PRIVATE muster_test_options muster_rendezvous_wire)
add_test(NAME config_json_fuzz COMMAND config_json_fuzz 100000)
set_tests_properties(config_json_fuzz PROPERTIES LABELS fuzz TIMEOUT 300)

add_executable(pickle_batch fuzz/pickle_batch.cc)
set_target_properties(pickle_batch PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(pickle_batch PRIVATE muster_options muster_rendezvous_wire)
add_test(NAME pickle_differential COMMAND Python3::Interpreter
  ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/pickle_differential.py $<TARGET_FILE:pickle_batch>
  ${rendezvous_goldens} --inputs 30000)
set_tests_properties(pickle_differential PROPERTIES LABELS fuzz TIMEOUT 300)

muster_add_tests(scenario_tests scenarios
  SOURCES
    scenarios/rendezvous_play.cc
    scenarios/scenarios_test.cc
    scenarios/supervision_play.cc
    support/torch_model.cc
  LINK muster_rendezvous_core muster_agent_core)
target_compile_definitions(scenario_tests PRIVATE
  MUSTER_SCENARIOS="${CMAKE_CURRENT_SOURCE_DIR}/scenarios")

if(MUSTER_SQLITE)
  muster_add_tests(state_tests threads
    SOURCES conformance/state/state_file_test.cc
    LINK muster_rendezvous_state)
endif()
