muster_add_tests(agent_core_tests unit
  SOURCES
    unit/agent/agent_watch_test.cc
    unit/agent/attempt_logs_test.cc
    unit/agent/earlier_attempts_test.cc
    unit/agent/end_cause_test.cc
    unit/agent/error_file_test.cc
    unit/agent/event_record_test.cc
    unit/agent/exit_report_left_test.cc
    unit/agent/exit_report_test.cc
    unit/agent/hang_detector_test.cc
    unit/agent/job_outcome_test.cc
    unit/agent/line_assembler_test.cc
    unit/agent/line_merger_test.cc
    unit/agent/log_cut_test.cc
    unit/agent/log_plan_test.cc
    unit/agent/pipe_size_test.cc
    unit/agent/logs_specs_test.cc
    unit/agent/numa_plan_test.cc
    unit/agent/oom_evidence_test.cc
    unit/agent/progress_text_test.cc
    unit/agent/ranks_test.cc
    unit/agent/report_text_test.cc
    unit/agent/signal_events_test.cc
    unit/agent/signal_name_test.cc
    unit/agent/stack_text_test.cc
    unit/agent/stat_text_test.cc
    unit/agent/stop_lines_test.cc
    unit/agent/strict_json_test.cc
    unit/agent/string_template_test.cc
    unit/agent/tail_ring_test.cc
    unit/agent/timer_table_test.cc
    unit/agent/uninterruptible_test.cc
    unit/agent/watched_time_test.cc
    unit/agent/worker_command_test.cc
    unit/agent/worker_end_test.cc
    unit/agent/worker_env_test.cc
    unit/agent/worker_lines_test.cc
    unit/agent/worker_table_test.cc
  LINK muster_agent_core nlohmann_json::nlohmann_json)

muster_add_tests(agent_logs_tests threads
  SOURCES
    unit/agent/log_pump_adversity_test.cc
    unit/agent/log_pump_console_test.cc
    unit/agent/log_pump_test.cc
  LINK muster_agent_logs)

muster_add_tests(agent_io_tests unit
  SOURCES
    unit/agent/error_file_io_test.cc
    unit/agent/node_answers_test.cc
    unit/agent/owned_folder_test.cc
  LINK muster_agent_io)

muster_add_tests(agent_stack_files_tests unit
  SOURCES unit/agent/stack_files_test.cc
  LINK muster_agent_io)

muster_add_tests(agent_rescue_tests unit
  SOURCES unit/agent/rescue_output_test.cc
  LINK muster_agent_posix)

muster_add_tests(agent_hang_tests unit
  SOURCES unit/agent/hang_response_test.cc
  LINK muster_agent_io)

muster_add_tests(agent_watchdogs_tests unit
  SOURCES unit/agent/watchdogs_test.cc
  LINK muster_agent_io)

# Measures the throughput of the log thread: it copies short lines from files to the console.
add_executable(log_pump_rate unit/agent/log_pump_rate.cc)
set_target_properties(log_pump_rate PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(log_pump_rate PRIVATE muster_test_options muster_agent_logs)
