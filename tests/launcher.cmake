muster_add_tests(unit_launcher unit
  SOURCES
    unit/launcher/argparse_test.cc
    unit/launcher/devices_test.cc
    unit/launcher/flag_values_test.cc
    unit/launcher/help_test.cc
    unit/launcher/launch_plan_test.cc
  LINK muster_launcher)
target_compile_definitions(unit_launcher PRIVATE MUSTER_MAN_PAGE="${PROJECT_SOURCE_DIR}/docs/muster.1")

add_executable(parse_lines conformance/parser/parse_lines.cc)
set_target_properties(parse_lines PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(parse_lines PRIVATE muster_options muster_launcher nlohmann_json::nlohmann_json)

# Reads the options of torchrun's own parser.
add_test(NAME parser_diff
  COMMAND ${MUSTER_TORCH_PYTHON}
    ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/parser_diff.py $<TARGET_FILE:parse_lines>)
set_tests_properties(parser_diff PROPERTIES LABELS conformance TIMEOUT 120 SKIP_RETURN_CODE 77)

add_test(NAME completion
  COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/conformance/parser/completion_test.sh
    $<TARGET_FILE:parse_lines>)
set_tests_properties(completion PROPERTIES LABELS conformance TIMEOUT 60)
