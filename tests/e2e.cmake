# The real programs, driven as a person or a scheduler would. MUSTER_BIN names the program.
function(muster_add_e2e name)
  add_test(NAME e2e.${name}
    COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/e2e/${name}_test.py)
  set_tests_properties(e2e.${name} PROPERTIES LABELS e2e TIMEOUT 600
    ENVIRONMENT "MUSTER_BIN=$<TARGET_FILE:muster>;PYTHONDONTWRITEBYTECODE=1")
endfunction()

muster_add_e2e(lifecycle)
muster_add_e2e(nothing_left)
