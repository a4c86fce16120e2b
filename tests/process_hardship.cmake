# What processes go through on a bad day: real programs, each with a bound and a documented outcome.
muster_add_python_test(hardship.control_thread hardship hardship/control_thread_test.py)
muster_add_python_test(hardship.process_agent hardship hardship/process_agent_test.py)
muster_add_python_test(hardship.process_cgroup hardship hardship/process_cgroup_test.py)
muster_add_python_test(hardship.process_restarts hardship hardship/process_restarts_test.py)
muster_add_python_test(hardship.process_storage hardship hardship/process_storage_test.py)

# A sample of what docs/testing.md has the long form of.
function(muster_add_moments name)
  add_test(NAME hardship.musterd_moments.${name} COMMAND Python3::Interpreter
    ${CMAKE_CURRENT_SOURCE_DIR}/hardship/musterd_moments.py ${ARGN})
  set_tests_properties(hardship.musterd_moments.${name} PROPERTIES LABELS hardship TIMEOUT 600
    SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")
endfunction()
muster_add_moments(none --moments 6 --state none)
muster_add_moments(etcd --moments 6 --state etcd)
if(MUSTER_SQLITE)
  muster_add_moments(sqlite --moments 6 --state sqlite)
  if(TARGET failing_writes)
    muster_add_moments(failing_writes --moments 6 --state sqlite --failing-writes 5000)
    set_property(TEST hardship.musterd_moments.failing_writes APPEND PROPERTY ENVIRONMENT
      "FAILING_WRITES_LIB=$<TARGET_FILE:failing_writes>")
  endif()
endif()
