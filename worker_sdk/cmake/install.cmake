# Installs the SDK for programs outside of this tree: headers, libraries, find_package(muster), pkg-config.
# cmake --install BUILD --component sdk --prefix WHERE
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/muster)

install(DIRECTORY include/muster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
install(TARGETS muster_worker_env EXPORT musterWorkerEnvTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT sdk)
install(EXPORT musterWorkerEnvTargets NAMESPACE muster:: DESTINATION ${package_folder} COMPONENT sdk)
set(pkg_config_files muster-worker-env)
if(TARGET muster_worker)
  install(TARGETS muster_worker EXPORT musterWorkerTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT sdk)
  install(EXPORT musterWorkerTargets NAMESPACE muster:: DESTINATION ${package_folder} COMPONENT sdk)
  install(FILES cmake/MusterTorch.cmake DESTINATION ${package_folder} COMPONENT sdk)
  set(torch_pc_libraries "-ltorch_cpu -lc10")
  if(muster_torch_CUDA)
    set(torch_pc_libraries "-ltorch_cuda -lc10_cuda ${torch_pc_libraries}")
  endif()
  # The same folders and macros as with find_package. The compiler searches /usr/include by itself.
  get_target_property(torch_pc_folders muster::torch INTERFACE_INCLUDE_DIRECTORIES)
  list(REMOVE_DUPLICATES torch_pc_folders)
  list(REMOVE_ITEM torch_pc_folders /usr/include)
  # torch may lie elsewhere where the SDK is used: pkg-config --define-variable=torch=FOLDER.
  string(REPLACE "${torch_prefix}/" "\${torch}/" torch_pc_folders "${torch_pc_folders}")
  list(TRANSFORM torch_pc_folders PREPEND "-isystem ")
  get_target_property(torch_pc_macros muster::torch INTERFACE_COMPILE_DEFINITIONS)
  list(TRANSFORM torch_pc_macros PREPEND "-D")
  list(JOIN torch_pc_folders " " torch_pc_folders)
  list(JOIN torch_pc_macros " " torch_pc_macros)
  list(APPEND pkg_config_files muster-worker)
endif()
foreach(file ${pkg_config_files})
  configure_file(cmake/${file}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc.in @ONLY)
  # `cmake --install --prefix` may change the prefix, so it is replaced at the installation.
  install(CODE "
    file(READ \"${CMAKE_CURRENT_BINARY_DIR}/${file}.pc.in\" text)
    string(REPLACE \"prefix=${CMAKE_INSTALL_PREFIX}\" \"prefix=\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
    file(WRITE \"${CMAKE_CURRENT_BINARY_DIR}/${file}.pc\" \"\${text}\")" COMPONENT sdk)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
endforeach()
configure_package_config_file(cmake/musterConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/musterConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/musterConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/musterConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/musterConfigVersion.cmake DESTINATION ${package_folder} COMPONENT sdk)
