# musterctl: what it prints, and the program beside a real musterd and real jobs.
muster_add_tests(musterctl_tests unit
  SOURCES
    unit/musterctl/http_text_test.cc
    unit/musterctl/doctor_test.cc
    unit/musterctl/rank_output_test.cc
    unit/musterctl/run_text_test.cc
  LINK muster_ctl nlohmann_json::nlohmann_json)

muster_add_python_test(e2e.musterctl nodes e2e/musterctl_test.py)
set_tests_properties(e2e.musterctl PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
muster_add_python_test(e2e.agent_http nodes e2e/agent_http_test.py)
set_tests_properties(e2e.agent_http PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
muster_add_python_test(e2e.walkthrough nodes e2e/walkthrough_test.py)
set_tests_properties(e2e.walkthrough PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
muster_add_python_test(e2e.monitoring nodes e2e/monitoring_test.py)
set_tests_properties(e2e.monitoring PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")
