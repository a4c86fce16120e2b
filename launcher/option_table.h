// The table of all options of the command line. The parser reads it, and the build makes the
// help, the completion scripts and the manual page from it (texts.h).
//
// The names of torchrun's options, their order and their values are those of torchrun 2.15's
// parser, because abbreviations and messages depend on them. muster's own options come last and
// need their exact spelling.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace muster {

/// The program that has the option. The rules for abbreviations and variables depend on it.
enum class OptionOrigin : std::uint8_t {
  Torchrun,
  LaunchModule,  // Only in python -m torch.distributed.launch, which is muster-launch here.
  Muster,
};

struct Flags;  // launcher/flags.h

/// What muster prints for an option that has no value in Flags. muster then exits.
enum class Prints : std::uint8_t {
  Help,
  Completion,
  TorchrunCompletion,
  PythonEntry,
  Recipe,
  Version
};

/// The field for the option's value, which also stands for the option in the code. Its type says
/// what the option takes: a bool takes nothing; a vector takes texts separated by commas, where two
/// commas stand for one inside a text.
using OptionField =
    std::variant<Prints, bool Flags::*, std::string Flags::*, std::optional<std::string> Flags::*,
                 std::int64_t Flags::*, std::optional<std::int64_t> Flags::*, double Flags::*,
                 std::optional<double> Flags::*, std::vector<std::string> Flags::*>;

/// The headings of the help, in their order.
enum class OptionGroup : std::uint8_t {
  Workers,
  Program,
  Rendezvous,
  FixedRanks,
  Logs,
  Failures,
  Devices,
  Muster,
  Inert,  // What is accepted for torchrun's sake only.
};
inline constexpr int kOptionGroupCount = static_cast<int>(OptionGroup::Inert) + 1;

/// A value that muster does not have yet. It is refused like every value that is not a choice, with
/// a sentence of its own.
struct PlannedValue {
  std::string_view value;   // Empty: the option has none.
  std::string_view reason;  // Why it is refused.
};

struct Option {
  OptionOrigin origin;
  OptionGroup group;
  OptionField field;
  std::array<std::string_view, 2> names;      // In argparse's order; the second may be empty.
  std::string_view environment;               // The option's variable; empty: none.
  std::string_view metavar;                   // The name of the value in the help.
  std::optional<std::string_view> fallback;   // Default without option and variable, if any.
  std::span<const std::string_view> choices;  // The allowed values; empty: any.
  std::string_view help;
  PlannedValue planned = {};
  /// The value of the option where it is given without one. Such an option takes a value only with
  /// "=". Empty: the option needs its value.
  std::string_view bare = {};
  bool is_hidden = false;  // Accepted, but neither in the help nor in completions.

  bool ends_muster() const { return std::holds_alternative<Prints>(field); }
  bool takes_value() const {
    return ends_muster() ? !choices.empty() : !std::holds_alternative<bool Flags::*>(field);
  }
  /// The long name, spelled with dashes.
  std::string_view long_name() const { return names[0].starts_with("--") ? names[0] : names[1]; }
  /// The short name, such as "-m", or empty.
  std::string_view short_name() const {
    return names[0].starts_with("--") ? std::string_view{} : names[0];
  }
  /// argparse's name for the option in messages: every spelling, with slashes between them.
  std::string display_name() const;
};

std::span<const Option> all_options();
/// The place of the field's option in all_options().
std::size_t option_index(const OptionField& field);
inline const Option& option(const OptionField& field) {
  return all_options()[option_index(field)];
}
/// Whether this program knows the option: --use-env belongs to muster-launch only.
bool is_known(const Option& option, bool launch_module);

}  // namespace muster
