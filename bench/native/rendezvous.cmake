# The programs that measure the rendezvous: each simulates many muster nodes.
add_executable(rendezvous_load
  ${CMAKE_CURRENT_LIST_DIR}/muster_nodes.cc ${CMAKE_CURRENT_LIST_DIR}/rendezvous_load.cc)
target_link_libraries(rendezvous_load PRIVATE
  muster_options muster_rendezvous_pure muster_tls CLI11::CLI11 nlohmann_json::nlohmann_json)
set_target_properties(rendezvous_load PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
add_executable(musterd_load
  ${CMAKE_CURRENT_LIST_DIR}/muster_nodes.cc ${CMAKE_CURRENT_LIST_DIR}/musterd_load.cc)
target_link_libraries(musterd_load PRIVATE
  muster_options muster_rendezvous_pure muster_tls CLI11::CLI11 nlohmann_json::nlohmann_json)
set_target_properties(musterd_load PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
add_dependencies(bench_programs rendezvous_load musterd_load)
