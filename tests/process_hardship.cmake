# Tests of faults that affect processes. They run real programs, each with a limit and a documented
# outcome.
muster_add_python_test(hardship.control_thread hardship hardship/control_thread_test.py)
if(MUSTER_SQLITE)
  muster_add_python_test(hardship.musterd_process hardship hardship/musterd_process_test.py)
  set_tests_properties(hardship.musterd_process PROPERTIES ENVIRONMENT
    "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
endif()
muster_add_python_test(hardship.file_systems hardship hardship/file_systems_test.py)
muster_add_python_test(hardship.process_agent hardship hardship/process_agent_test.py)
muster_add_python_test(hardship.process_cgroup hardship hardship/process_cgroup_test.py)
muster_add_python_test(hardship.process_moments hardship hardship/process_moments_test.py)
muster_add_python_test(hardship.process_namespaces hardship hardship/process_namespaces_test.py)
muster_add_python_test(hardship.process_restarts hardship hardship/process_restarts_test.py)
# Some of these tests wait for 30 s, so the parts run side by side.
foreach(shard RANGE 1 2)
  muster_add_python_test(hardship.process_storage.${shard} hardship hardship/process_storage_test.py)
  set_tests_properties(hardship.process_storage.${shard} PROPERTIES
    ENVIRONMENT_MODIFICATION "MUSTER_SHARD=set:${shard}/2")
endforeach()
muster_add_python_test(hardship.process_workers hardship hardship/process_workers_test.py)
# These two tests take about 15 s each. The second one starts 1,000 processes at a time.
set_tests_properties(hardship.process_moments hardship.process_workers PROPERTIES COST 15)
set_tests_properties(hardship.process_workers PROPERTIES PROCESSORS 2)

if(TARGET foreign_thread)
  muster_add_python_test(hardship.foreign_thread hardship hardship/foreign_thread_test.py)
endif()
if(TARGET shifted_clock)
  muster_add_python_test(hardship.clock hardship hardship/clock_test.py)
  set_tests_properties(hardship.clock PROPERTIES COST 45 ENVIRONMENT
    "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_SHIFTED_CLOCK=$<TARGET_FILE:shifted_clock>")
endif()

# A short sample. docs/testing.md describes the long runs.
function(muster_add_moments name)
  add_test(NAME hardship.musterd_moments.${name} COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/hardship/musterd_moments.py ${ARGN})
  set_tests_properties(hardship.musterd_moments.${name} PROPERTIES LABELS hardship TIMEOUT 600
    SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")
endfunction()
muster_add_moments(none --state none)
muster_add_moments(etcd --state etcd)
if(MUSTER_SQLITE)
  muster_add_moments(sqlite --state sqlite)
  if(TARGET failing_writes)
    muster_add_moments(failing_writes --state sqlite --failing-writes 5000)
    set_property(TEST hardship.musterd_moments.failing_writes APPEND PROPERTY ENVIRONMENT
      "FAILING_WRITES_LIB=$<TARGET_FILE:failing_writes>")
  endif()
endif()
