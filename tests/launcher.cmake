muster_add_tests(unit_launcher unit
  SOURCES
    unit/launcher/argparse_test.cc
    unit/launcher/devices_plan_test.cc
    unit/launcher/devices_test.cc
    unit/launcher/flag_values_test.cc
    unit/launcher/help_test.cc
    unit/launcher/launch_plan_test.cc
    unit/launcher/launch_text_test.cc
    unit/launcher/run_id_plan_test.cc
    unit/launcher/stop_flags_test.cc
  LINK muster_launcher)
target_compile_definitions(unit_launcher PRIVATE MUSTER_SHARE="${CMAKE_BINARY_DIR}/share")

# NVML's library is in its own folder, so that only this test loads it.
add_library(fake_nvml SHARED unit/launcher/fake_nvml.cc)
target_link_libraries(fake_nvml PRIVATE muster_test_options)
set_target_properties(fake_nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_nvml)
add_executable(unit_launcher_nvml unit/launcher/nvml_test.cc)
set_target_properties(unit_launcher_nvml PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(unit_launcher_nvml PRIVATE muster_test_options muster_launcher Catch2::Catch2WithMain)
add_dependencies(unit_launcher_nvml fake_nvml)
add_dependencies(sanitized_tests unit_launcher_nvml)
add_test(NAME unit_launcher_nvml COMMAND unit_launcher_nvml)
set_tests_properties(unit_launcher_nvml PROPERTIES LABELS unit TIMEOUT 60
  ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/fake_nvml")

add_executable(parse_lines conformance/parser/parse_lines.cc)
set_target_properties(parse_lines PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(parse_lines PRIVATE muster_test_options muster_launcher nlohmann_json::nlohmann_json)

# These tests compare with torchrun's own parser: that of the installed torch, and those of other releases. The
# Python part of a release is in the folder where scripts/torch_release puts it.
add_test(NAME parser_diff
  COMMAND ${MUSTER_TORCH_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/parser_diff.py $<TARGET_FILE:parse_lines>)
foreach(release 2.13.0 2.14.1 2.15.0)
  add_test(NAME parser_diff.${release}
    COMMAND ${MUSTER_TORCH_PYTHON}
      ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/parser_diff.py $<TARGET_FILE:parse_lines>
      --release ${release} --releases ${PROJECT_SOURCE_DIR}/build/torch-releases --count 4000)
  set_tests_properties(parser_diff.${release} PROPERTIES
    LABELS conformance TIMEOUT 600 SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME devices_diff
  COMMAND ${MUSTER_TORCH_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/devices_diff.py $<TARGET_FILE:parse_lines>)
set_tests_properties(parser_diff devices_diff PROPERTIES
  LABELS conformance TIMEOUT 600 SKIP_RETURN_CODE 77)

add_test(NAME completion
  COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/completion_test.sh
    $<TARGET_FILE:parse_lines>)
set_tests_properties(completion PROPERTIES LABELS conformance TIMEOUT 60)

# Tests of the reader on machines that hwloc invents, and of the plan against torch's.
muster_add_tests(launcher_numa_tests unit
  SOURCES unit/launcher/numa_topology_test.cc
  LINK muster_numa_topology)
add_executable(numa_plans conformance/numa/numa_plans.cc)
set_target_properties(numa_plans PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(numa_plans
  PRIVATE muster_test_options muster_numa_topology nlohmann_json::nlohmann_json)
add_test(NAME numa_diff
  COMMAND ${MUSTER_TORCH_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/conformance/numa/numa_diff.py
    $<TARGET_FILE:numa_plans>)
set_tests_properties(numa_diff PROPERTIES LABELS conformance TIMEOUT 900 SKIP_RETURN_CODE 77)
