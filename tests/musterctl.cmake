# Tests of musterctl: its output, and the program with a real musterd and real jobs.
muster_add_tests(musterctl_tests unit
  SOURCES
    unit/musterctl/http_text_test.cc
    unit/musterctl/doctor_test.cc
    unit/musterctl/gpu_errors_test.cc
    unit/musterctl/interfaces_test.cc
    unit/musterctl/local_jobs_test.cc
    unit/musterctl/pair_schedule_test.cc
    unit/musterctl/peer_checks_test.cc
    unit/musterctl/peer_json_test.cc
    unit/musterctl/process_texts_test.cc
    unit/musterctl/rank_output_test.cc
    unit/musterctl/run_text_test.cc
  LINK muster_ctl nlohmann_json::nlohmann_json)

muster_add_tests(probe_tests threads
  SOURCES conformance/probe_test.cc
  LINK muster_ctl muster_rendezvous_net)

# Fake GPUs for the doctor on machines without GPUs.
add_library(fake_gpus SHARED unit/musterctl/fake_gpus.cc)
target_link_libraries(fake_gpus PRIVATE muster_test_options)
set_target_properties(fake_gpus PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_gpus)
add_dependencies(sanitized_tests fake_gpus)

muster_add_python_test(e2e.musterctl nodes e2e/musterctl_test.py)
muster_add_python_test(e2e.musterctl_answers nodes e2e/musterctl_answers_test.py)
muster_add_python_test(e2e.musterctl_changes nodes e2e/musterctl_changes_test.py)
muster_add_python_test(e2e.musterctl_logs nodes e2e/musterctl_logs_test.py)
muster_add_python_test(e2e.followers nodes e2e/followers_test.py)
muster_add_python_test(e2e.musterctl_workers nodes e2e/musterctl_workers_test.py)
set_tests_properties(e2e.musterctl e2e.musterctl_answers e2e.musterctl_changes e2e.musterctl_logs e2e.followers e2e.musterctl_workers
  PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>;FAKE_GPUS=$<TARGET_FILE_DIR:fake_gpus>")
muster_add_python_test(e2e.agent_http nodes e2e/agent_http_test.py)
set_tests_properties(e2e.agent_http PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
muster_add_python_test(e2e.walkthrough nodes e2e/walkthrough_test.py)
set_tests_properties(e2e.walkthrough PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>")
muster_add_python_test(e2e.monitoring nodes e2e/monitoring_test.py)
muster_add_python_test(e2e.readiness nodes e2e/readiness_test.py)
set_tests_properties(e2e.monitoring e2e.readiness PROPERTIES ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")
muster_add_python_test(e2e.doctor_nodes nodes e2e/doctor_nodes_test.py)
set_tests_properties(e2e.doctor_nodes PROPERTIES PROCESSORS 2 ENVIRONMENT
  "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTERCTL_BIN=$<TARGET_FILE:musterctl>;MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
