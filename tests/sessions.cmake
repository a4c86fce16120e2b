# A node among torchrun nodes: what it decides, alone and in a simulated crowd, and with real torch.
muster_add_tests(c10d_participant_tests unit
  SOURCES unit/rendezvous/c10d_participant_test.cc
  LINK muster_rendezvous_core)
muster_add_tests(c10d_participant_simulation simulation
  SOURCES
    simulation/c10d_participant_simulation.cc
    support/torch_model.cc
  LINK muster_rendezvous_core)
muster_add_tests(agent_sessions_core_tests unit
  SOURCES
    unit/agent/host_match_test.cc
    unit/agent/rank_messages_test.cc
  LINK muster_agent_core)
