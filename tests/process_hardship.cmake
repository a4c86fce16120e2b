# What processes go through on a bad day: real programs, each with a bound and a documented outcome.
muster_add_python_test(hardship.process_agent hardship hardship/process_agent_test.py)
muster_add_python_test(hardship.process_restarts hardship hardship/process_restarts_test.py)
muster_add_python_test(hardship.process_storage hardship hardship/process_storage_test.py)
