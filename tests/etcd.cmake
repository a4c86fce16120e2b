# Tests of musterds that share their state through etcd. Without etcd they are skipped and say so.
muster_add_tests(etcd_unit_tests unit
  SOURCES
    unit/etcd/etcd_address_test.cc
    unit/etcd/etcd_json_test.cc
    unit/etcd/etcd_login_test.cc
    unit/etcd/etcd_records_test.cc
    unit/etcd/host_record_test.cc
  LINK muster_rendezvous_etcd)

muster_add_python_test(e2e.etcd e2e etcd/etcd_test.py)
set_tests_properties(e2e.etcd PROPERTIES
  ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")

# Tests of agents that host the rendezvous themselves.
muster_add_python_test(e2e.etcd_backend e2e etcd/etcd_backend_test.py)
muster_add_python_test(e2e.etcd_network nodes etcd/etcd_network_test.py)
set_tests_properties(e2e.etcd_backend PROPERTIES COST 120)

# A test with an etcd that requires users and passwords.
muster_add_python_test(e2e.etcd_auth e2e etcd/etcd_auth_test.py)
set_tests_properties(e2e.etcd_auth PROPERTIES
  ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")

# A test with an etcd that uses TLS and requires certificates.
muster_add_python_test(e2e.etcd_tls e2e etcd/etcd_tls_test.py)
set_tests_properties(e2e.etcd_tls PROPERTIES
  ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>")
