# Tests that run the real programs as a person or a scheduler would. MUSTER_BIN names the program.
set(e2e_environment "MUSTER_BIN=$<TARGET_FILE:muster>;PYTHONDONTWRITEBYTECODE=1")

function(muster_add_python_test name label script)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/${script})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 SKIP_RETURN_CODE 77
    ENVIRONMENT "${e2e_environment}")
  if(label MATCHES "^(attack|hardship)$")
    # These tests take minutes, so they begin early.
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

muster_add_python_test(e2e.devices e2e e2e/devices_test.py)
muster_add_python_test(e2e.earlier_attempts e2e e2e/earlier_attempts_test.py)
muster_add_python_test(e2e.early_kill e2e e2e/early_kill_test.py)
muster_add_python_test(e2e.events e2e e2e/events_test.py)
muster_add_python_test(e2e.failure_files e2e e2e/failure_files_test.py)
muster_add_python_test(e2e.forwarded_signals e2e e2e/forwarded_signals_test.py)
muster_add_python_test(e2e.help e2e e2e/help_test.py)
muster_add_python_test(e2e.late_ends e2e e2e/late_ends_test.py)
muster_add_python_test(e2e.leftovers e2e e2e/leftovers_test.py)
muster_add_python_test(e2e.lifecycle e2e e2e/lifecycle_test.py)
muster_add_python_test(e2e.logs e2e e2e/logs_test.py)
muster_add_python_test(e2e.master_port e2e e2e/master_port_test.py)
muster_add_python_test(e2e.nothing_left e2e e2e/nothing_left_test.py)
muster_add_python_test(e2e.surroundings e2e e2e/surroundings_test.py)
muster_add_python_test(e2e.python_choice e2e e2e/python_choice_test.py)
muster_add_python_test(e2e.hang e2e e2e/hang_test.py)
muster_add_python_test(e2e.watchdog e2e e2e/watchdog_test.py)
muster_add_python_test(e2e.agent_store conformance e2e/agent_store_test.py)  # Its workers load torch.
# Tests of the Python entry: sanitizers cannot check it, and its setup takes pip a minute.
muster_add_python_test(e2e.entry conformance e2e/entry_test.py)
muster_add_python_test(e2e.loaders e2e e2e/loaders_test.py)
muster_add_python_test(e2e.nodes e2e e2e/nodes_test.py)
muster_add_python_test(e2e.versions e2e e2e/versions_test.py)
muster_add_python_test(e2e.logs_specs conformance e2e/logs_specs_test.py)
muster_add_python_test(e2e.mixed_nodes conformance e2e/mixed_nodes_test.py)
muster_add_python_test(e2e.mixed_reduce conformance e2e/mixed_reduce_test.py)
set_tests_properties(e2e.logs_specs e2e.mixed_nodes e2e.mixed_reduce PROPERTIES
  ENVIRONMENT "${e2e_environment};MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
# The longest test file is split into parts that run at the same time.
set(torchrun_failures)
foreach(shard RANGE 1 4)
  list(APPEND torchrun_failures e2e.torchrun_failures.${shard})
  muster_add_python_test(e2e.torchrun_failures.${shard} conformance e2e/torchrun_failures_test.py)
  set_tests_properties(e2e.torchrun_failures.${shard} PROPERTIES
    ENVIRONMENT_MODIFICATION "MUSTER_SHARD=set:${shard}/4")
endforeach()
muster_add_python_test(e2e.mixed_ends conformance e2e/mixed_ends_test.py)
muster_add_python_test(e2e.addresses nodes e2e/addresses_test.py)
muster_add_python_test(e2e.network nodes e2e/network_test.py)
muster_add_python_test(e2e.slow_names nodes e2e/slow_names_test.py)
muster_add_python_test(e2e.proxy nodes e2e/proxy_test.py)
muster_add_python_test(e2e.several_hosts nodes e2e/several_hosts_test.py)
muster_add_python_test(e2e.musterd_job nodes e2e/musterd_job_test.py)
muster_add_python_test(e2e.paused_machine nodes e2e/paused_machine_test.py)
muster_add_python_test(e2e.token nodes e2e/token_test.py)
muster_add_python_test(e2e.store_address nodes e2e/store_address_test.py)
muster_add_python_test(e2e.musterd_config nodes e2e/musterd_config_test.py)
set_tests_properties(e2e.musterd_config PROPERTIES ENVIRONMENT
  "MUSTERD_BIN=$<TARGET_FILE:musterd>;PYTHONDONTWRITEBYTECODE=1")
muster_add_python_test(e2e.token_page conformance e2e/token_page_test.py)
if(MUSTER_SQLITE)
  muster_add_python_test(e2e.musterd_state nodes e2e/musterd_state_test.py)
  muster_add_python_test(e2e.late_failure nodes e2e/late_failure_test.py)
  set_tests_properties(e2e.musterd_state e2e.late_failure PROPERTIES
    ENVIRONMENT
    "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
endif()
muster_add_python_test(e2e.canary nodes e2e/canary_test.py)
muster_add_python_test(e2e.other_user nodes e2e/other_user_test.py)
muster_add_python_test(e2e.one_file scripts e2e/one_file_test.py)
muster_add_python_test(e2e.node_ends nodes e2e/node_ends_test.py)
set_tests_properties(e2e.addresses e2e.network e2e.slow_names e2e.proxy e2e.several_hosts e2e.musterd_job e2e.paused_machine e2e.token e2e.store_address e2e.token_page e2e.canary e2e.other_user e2e.node_ends e2e.one_file ${torchrun_failures} e2e.mixed_ends
  PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
set_property(TEST e2e.token_page APPEND PROPERTY ENVIRONMENT "MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
set_property(TEST e2e.one_file APPEND PROPERTY ENVIRONMENT "MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
set_property(TEST e2e.canary APPEND PROPERTY ENVIRONMENT "MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
if(MUSTER_OPENSSL)
  muster_add_python_test(e2e.tls nodes e2e/tls_test.py)
  muster_add_python_test(e2e.tls_allow nodes e2e/tls_allow_test.py)
  set_tests_properties(e2e.tls e2e.tls_allow PROPERTIES ENVIRONMENT
    "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
endif()
muster_add_python_test(e2e.examples examples e2e/examples_test.py)
muster_add_python_test(e2e.examples_lan examples e2e/examples_lan_test.py)
muster_add_python_test(e2e.fault_tolerance examples e2e/fault_tolerance_test.py)
muster_add_python_test(e2e.readmes examples e2e/readmes_test.py)
muster_add_python_test(e2e.troubleshooting examples e2e/troubleshooting_test.py)
set_tests_properties(e2e.examples_lan e2e.fault_tolerance e2e.readmes e2e.troubleshooting PROPERTIES
  TIMEOUT 1800 ENVIRONMENT "${e2e_environment};MUSTER_BUILD=${CMAKE_BINARY_DIR}")
muster_add_python_test(e2e.quickstart_script scripts e2e/digits_quickstart_test.py)
muster_add_python_test(conformance.environment conformance conformance/environment_test.py)
muster_add_python_test(conformance.workers conformance conformance/workers_test.py)
muster_add_python_test(e2e.run_tests_script scripts e2e/run_tests_script_test.py)
muster_add_python_test(bench.selftest bench ../bench/selftest.py)
if(MUSTER_BENCH)
  add_custom_target(bench_for_tests ALL DEPENDS rendezvous_load)
  add_test(NAME bench.traffic COMMAND Python3::Interpreter
    ${PROJECT_SOURCE_DIR}/bench/traffic_test.py
    $<TARGET_FILE:musterd> $<TARGET_FILE:rendezvous_load>)
  set_tests_properties(bench.traffic PROPERTIES LABELS bench TIMEOUT 900)
endif()

# These tests import train.py, which needs torch.
add_test(NAME e2e.digits_data
  COMMAND ${MUSTER_TORCH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/digits_data_test.py)
set_tests_properties(e2e.digits_data PROPERTIES LABELS examples TIMEOUT 600
  ENVIRONMENT "${e2e_environment}")
