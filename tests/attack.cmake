# Hostile clients against live servers. MUSTERD_BIN and MUSTER_BIN name the programs.
set(victims musterd job node training token c10d http)
if(MUSTER_OPENSSL)
  list(APPEND victims tls)
endif()
set(slowness 1)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(slowness 4)
endif()
foreach(victim ${victims})
  muster_add_python_test(attack.${victim} attack attack/${victim}_attack_test.py)
  set_tests_properties(attack.${victim} PROPERTIES TIMEOUT 600 PROCESSORS 2 ENVIRONMENT
    "${e2e_environment};MUSTERD_BIN=$<TARGET_FILE:musterd>;MUSTER_SLOWNESS=${slowness};MUSTER_TORCH_PYTHON=${MUSTER_TORCH_PYTHON}")
endforeach()
