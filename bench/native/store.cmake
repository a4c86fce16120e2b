# The programs that measure the store: the load, and the smallest possible server.
add_executable(bare_epoll_server ${CMAKE_CURRENT_LIST_DIR}/bare_epoll_server.cc)
target_link_libraries(bare_epoll_server PRIVATE muster_options)
add_executable(store_load ${CMAKE_CURRENT_LIST_DIR}/store_load.cc)
target_link_libraries(store_load PRIVATE
  muster_rendezvous_pure CLI11::CLI11 nlohmann_json::nlohmann_json)
set_target_properties(bare_epoll_server store_load PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
add_dependencies(bench_programs bare_epoll_server store_load)
