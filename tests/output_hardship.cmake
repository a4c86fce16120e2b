# Tests of faults that affect output: readers, full disks, and storage that hangs or disappears.
muster_add_python_test(hardship.output_console hardship hardship/output_console_test.py)
muster_add_python_test(hardship.output_storage hardship hardship/output_storage_test.py)
muster_add_python_test(hardship.full_disk hardship hardship/full_disk_test.py)
muster_add_python_test(hardship.log_readers hardship hardship/log_readers_test.py)
# About 20 s and 8 s.
set_tests_properties(hardship.full_disk PROPERTIES COST 20)
set_tests_properties(hardship.log_readers PROPERTIES COST 8 PROCESSORS 2)
if(TARGET failing_writes)
  muster_add_python_test(hardship.output_errors hardship hardship/output_errors_test.py)
  set_tests_properties(hardship.output_errors PROPERTIES COST 25 ENVIRONMENT
    "${e2e_environment};FAILING_WRITES_LIB=$<TARGET_FILE:failing_writes>")
endif()
