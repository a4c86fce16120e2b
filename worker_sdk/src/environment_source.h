// Reads single variables, with helpful errors. Private to the environment's readers.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "muster/environment.h"

namespace muster {

/// The smallest and the largest valid value of a whole number.
struct Bounds {
  int least = 0;
  int most = std::numeric_limits<int>::max();
};

/// Returns the whole number of a text. Returns nothing if the text is not a decimal number, or the
/// number is out of bounds.
std::optional<int> parse_whole(std::string_view text, Bounds bounds);

class EnvironmentSource {
 public:
  /// `setter` is the program that should have set the variables, for messages.
  EnvironmentSource(const EnvironmentLookup& lookup, std::string_view setter)
      : lookup_(lookup), setter_(setter) {}

  /// Returns nothing if the variable is not set or empty.
  std::optional<std::string> text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string_view fallback) const;
  /// Throws Error if the variable is set, but is not a whole number in bounds.
  std::optional<int> number(std::string_view name, Bounds bounds) const;
  int number_or(std::string_view name, int fallback, Bounds bounds) const;
  /// Also throws Error if the variable is missing.
  int required(std::string_view name, Bounds bounds) const;
  std::string required_text(std::string_view name, std::string_view what) const;

  /// Throws Error with the variable, its value, and the expected value. For checks of several
  /// variables.
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const;
  [[noreturn]] void fail_missing(std::string_view name, std::string_view advice) const;

 private:
  const EnvironmentLookup& lookup_;
  std::string_view setter_;
};

/// Read the variables of srun or mpirun. Return nothing if this process was not started by it.
std::optional<Environment> read_slurm(const EnvironmentLookup& lookup);
std::optional<Environment> read_open_mpi(const EnvironmentLookup& lookup);

/// Returns the first host of Slurm's compressed list: "node007" for "node[007-9,12],gpu1". Returns
/// an empty text if the list has another form.
std::string first_host(std::string_view node_list);
/// Returns the number of tasks on a node, from Slurm's list "4(x2),3". The first node has the
/// number 0. Returns nothing if the list has another form, or too few nodes.
std::optional<int> tasks_on_node(std::string_view tasks_per_node, int node);

}  // namespace muster
