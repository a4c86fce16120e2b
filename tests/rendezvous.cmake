# The store: unit tests, the seeded simulation, the server over loopback, recorded bytes, live torch.
muster_add_tests(rendezvous_unit_tests unit
  SOURCES
    unit/rendezvous/c10d_codec_test.cc
    unit/rendezvous/shared_bytes_test.cc
    unit/rendezvous/store_table_test.cc
  LINK muster_rendezvous_wire)
muster_add_tests(store_simulation simulation
  SOURCES simulation/store_simulation.cc
  LINK muster_rendezvous_wire)
