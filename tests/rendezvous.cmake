# The store: unit tests, the seeded simulation, the server over loopback, recorded bytes, and the
# real torch.
muster_add_tests(rendezvous_unit_tests unit
  SOURCES
    unit/rendezvous/address_scope_test.cc
    unit/rendezvous/bounded_json_test.cc
    unit/rendezvous/c10d_codec_test.cc
    unit/rendezvous/json_integer_test.cc
    unit/rendezvous/limit_advice_test.cc
    unit/rendezvous/linger_test.cc
    unit/rendezvous/proc_cgroup_test.cc
    unit/rendezvous/shared_bytes_test.cc
    unit/rendezvous/size_text_test.cc
    unit/rendezvous/store_append_test.cc
    unit/rendezvous/store_table_test.cc
  LINK muster_rendezvous_wire)
muster_add_tests(store_simulation simulation
  SOURCES simulation/store_simulation.cc
  LINK muster_rendezvous_wire)
muster_add_tests(store_server_tests threads
  SOURCES
    conformance/event_set_test.cc
    unit/rendezvous/connect_errors_test.cc
    unit/rendezvous/log_limiter_test.cc
    conformance/store_client_test.cc
    conformance/store_server_test.cc
  LINK muster_rendezvous_net)

# A check of the program itself. Exit code 77 means skipped, and the output says why.
function(muster_add_musterd_test name)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS conformance TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()
set(conformance ${CMAKE_CURRENT_SOURCE_DIR}/conformance)
muster_add_musterd_test(musterd_program ${conformance}/musterd_test.py $<TARGET_FILE:musterd>)
foreach(recording ops_libuv raw_libuv)
  muster_add_musterd_test(store_golden_${recording} ${conformance}/against_musterd.py
    $<TARGET_FILE:musterd> replay ${conformance}/golden/${recording}.json)
endforeach()
muster_add_musterd_test(store_conformance ${conformance}/against_musterd.py
  $<TARGET_FILE:musterd> conformance ${PROJECT_SOURCE_DIR}/.venv/bin/python)

# Each fuzzer runs for some seconds. docs/testing.md describes runs of hours.
add_test(NAME decoders_fuzz COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/turns.sh 5
  native_message http worker_channel worker_files config_json etcd_answers addresses run_record
  store_codec tensor_pickle store_replies peer ctl_answers system_texts)
set_tests_properties(decoders_fuzz PROPERTIES LABELS fuzz TIMEOUT 1800 SKIP_RETURN_CODE 77)
