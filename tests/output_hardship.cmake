# What output goes through on a bad day: readers, full disks, storage that hangs or goes.
muster_add_python_test(hardship.output_console hardship hardship/output_console_test.py)
muster_add_python_test(hardship.output_storage hardship hardship/output_storage_test.py)
