// Variables read one at a time, with errors that help. Private to the environment's readers.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "muster/environment.h"

namespace muster {

/// What a whole number may be, both ends included.
struct Bounds {
  int least = 0;
  int most = std::numeric_limits<int>::max();
};

/// A text as a whole number in bounds: decimal digits, nothing else; nothing if it is not.
std::optional<int> parse_whole(std::string_view text, Bounds bounds);

class EnvironmentSource {
 public:
  /// `setter` is who should have set the variables: "muster or torchrun".
  EnvironmentSource(const EnvironmentLookup& lookup, std::string_view setter)
      : lookup_(lookup), setter_(setter) {}

  /// Nothing if not set or empty.
  std::optional<std::string> text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string_view fallback) const;
  /// Throws Error if the variable is set, but not a whole number in bounds.
  std::optional<int> number(std::string_view name, Bounds bounds) const;
  int number_or(std::string_view name, int fallback, Bounds bounds) const;
  /// Throws Error if it is missing, too.
  int required(std::string_view name, Bounds bounds) const;
  std::string required_text(std::string_view name, std::string_view what) const;

  /// "RANK=x: " and what is expected; for errors about more than one variable.
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const;
  [[noreturn]] void fail_missing(std::string_view name, std::string_view advice) const;

 private:
  const EnvironmentLookup& lookup_;
  std::string_view setter_;
};

/// srun's and mpirun's variables; nothing if this process was not started so.
std::optional<Environment> read_slurm(const EnvironmentLookup& lookup);
std::optional<Environment> read_open_mpi(const EnvironmentLookup& lookup);

/// The first host of Slurm's compressed list: "node[007-9,12],gpu1" is "node007". Empty if the
/// text is no such list.
std::string first_host(std::string_view node_list);
/// Tasks on the n-th node of Slurm's "4(x2),3"; nothing if the text is not of this form or has too
/// few nodes.
std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace muster
