// One rank of a job whose results are compared with Python's. Each test fills a table that
// sdk_test.py reads.
#pragma once

#include <exception>
#include <map>
#include <string>

#include <c10/util/Exception.h>
#include <torch/types.h>

#include "muster/error.h"

namespace muster::testing {

using Table = std::map<std::string, torch::Tensor>;

/// Twins of the functions of the same names in twin.py.
Table run_collectives();
Table run_ddp(const std::string& variant);
Table run_ddp_tied();
Table run_complex();
Table run_extra();
/// Rank 1, among Python ranks: texts of errors.
Table run_foreign_objects();
/// C++ only: texts of errors.
Table run_wrong_calls();
Table run_views();
Table run_lost_peer(const std::string& variant);
Table run_unused_error();
Table run_subgroup_checkpoint(const std::string& folder);
/// C++ only: trains, saves each epoch, and continues from the latest snapshot.
Table run_checkpoint(const std::string& variant);
Table run_checkpoint_memory(const std::string& folder);
Table run_checkpoint_misfit(const std::string& folder);
Table run_checkpoint_foreign(const std::string& folder);
Table run_checkpoint_wait(const std::string& folder);
Table run_checkpoint_store_lost(const std::string& folder);

/// Returns "c10::Error: <text>", "muster::Error: <text>", ... or "no error".
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string("muster::Error: ") + error.what();
  } catch (const c10::Error& error) {
    return std::string("c10::Error: ") + error.what_without_backtrace();
  } catch (const std::exception& error) {
    return std::string("another: ") + error.what();
  }
  return "no error";
}

}  // namespace muster::testing
