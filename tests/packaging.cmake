# Tests of the packages and of the systems on which they promise to run.

muster_add_tests(system_random_tests unit
  SOURCES unit/rendezvous/system_random_test.cc
  LINK muster_system_random)

# Not with sanitizers: their runtime would have to be loaded before this library.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_library(old_kernel SHARED support/old_kernel.cc)
  target_link_libraries(old_kernel PRIVATE muster_options ${CMAKE_DL_LIBS})
  set_target_properties(old_kernel PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  muster_add_python_test(e2e.old_kernel e2e e2e/old_kernel_test.py)
  set_tests_properties(e2e.old_kernel PROPERTIES
    ENVIRONMENT "${e2e_environment};MUSTER_OLD_KERNEL=$<TARGET_FILE:old_kernel>")
endif()

add_test(NAME packages.documents
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/packaging/documents_test.py)
set_tests_properties(packages.documents PROPERTIES LABELS scripts TIMEOUT 120
  ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;MUSTERD_BIN=$<TARGET_FILE:musterd>")

# Reads and installs the files that scripts/package made in build/packages. Skipped if there are none; the installation
# also needs root.
add_test(NAME packages.files
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/packaging/files_test.py)
set_tests_properties(packages.files PROPERTIES LABELS packages TIMEOUT 900 COST 100 PROCESSORS 4 SKIP_RETURN_CODE 77
  ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
add_test(NAME packages.install
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/packaging/packages_test.py)
set_tests_properties(packages.install PROPERTIES LABELS packages TIMEOUT 3600 COST 300 SKIP_RETURN_CODE 77
  ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")

# The bundle for a machine with a GPU, and the program in it that plays the checks.
add_test(NAME gpu.steps COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/steps_test.py)
add_test(NAME gpu.bundle COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/gpu/bundle_test.py)
set_tests_properties(gpu.steps gpu.bundle PROPERTIES LABELS scripts TIMEOUT 300 SKIP_RETURN_CODE 77
  ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;MUSTER_BIN=$<TARGET_FILE:muster>;MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
