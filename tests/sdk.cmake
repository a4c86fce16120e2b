# The worker SDK: the part without LibTorch always, the rest where the SDK is built.
muster_add_tests(sdk_env_tests unit
  SOURCES unit/worker_sdk/environment_test.cc
  LINK muster::worker_env)
target_include_directories(sdk_env_tests PRIVATE ${PROJECT_SOURCE_DIR}/worker_sdk/src)
