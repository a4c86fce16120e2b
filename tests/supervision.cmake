muster_add_tests(supervisor_tests unit
  SOURCES unit/agent/supervisor_test.cc unit/agent/supervisor_leftovers_test.cc
    unit/agent/leftovers_test.cc unit/agent/forwarded_signals_test.cc
    unit/agent/failure_notes_test.cc
  LINK muster_agent_core)
muster_add_tests(supervisor_simulation simulation
  SOURCES simulation/supervisor_simulation.cc
  LINK muster_agent_core)
muster_add_tests(agent_tests unit
  SOURCES unit/agent/agent_test.cc
  LINK muster_agent_io)
muster_add_tests(bounded_read_tests threads
  SOURCES unit/agent/bounded_read_test.cc
  LINK muster_agent_posix)
muster_add_tests(posix_tests unit
  SOURCES unit/agent/spawn_test.cc unit/agent/shim_protocol_test.cc unit/agent/process_scan_test.cc unit/agent/worker_cgroup_test.cc
    unit/agent/helper_process_test.cc unit/agent/bounded_child_test.cc unit/agent/lost_agent_test.cc
  LINK muster_agent_posix)
