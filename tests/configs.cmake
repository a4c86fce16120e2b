# Tests of configs/: the units under a real systemd, and the recipes as far as one machine can run
# them. Release build only: programs with sanitizers do not run in the units' sandbox.

# Debian's own Python: python3-yaml is its package.
find_program(MUSTER_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT MUSTER_SYSTEM_PYTHON)
  set(MUSTER_SYSTEM_PYTHON ${Python3_EXECUTABLE})
endif()

function(muster_add_configs_test name label script)
  add_test(NAME ${name} COMMAND ${MUSTER_SYSTEM_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${script})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_BUILD=${CMAKE_BINARY_DIR}")
endfunction()

muster_add_configs_test(e2e.notify e2e e2e/notify_test.py)
muster_add_configs_test(configs.systemd configs e2e/systemd_test.py)
set_tests_properties(configs.systemd PROPERTIES TIMEOUT 900 COST 120)
muster_add_configs_test(configs.recipes configs e2e/recipes_test.py)
muster_add_configs_test(configs.recipe_files configs e2e/recipe_files_test.py)
