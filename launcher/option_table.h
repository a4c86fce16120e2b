// Every option of the command line, once: the parser, the help, the completion scripts and the
// man page all read this table.
//
// The names, their order and what they take are those of torchrun 2.13's parser, because
// abbreviations and messages follow from them; muster's own options come last and need their exact
// spelling.
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

/// In the order of the table, so that an id is also an index.
enum class OptionId : std::uint8_t {
  Help,
  Nnodes,
  NprocPerNode,
  RdzvBackend,
  RdzvEndpoint,
  RdzvId,
  RdzvConf,
  Standalone,
  MaxRestarts,
  MonitorInterval,
  StartMethod,
  EventLogHandler,
  Role,
  Module,
  NoPython,
  RunPath,
  LogDir,
  Redirects,
  Tee,
  LocalRanksFilter,
  DuplicateStdoutFilters,
  DuplicateStderrFilters,
  NodeRank,
  MasterAddr,
  MasterPort,
  LocalAddr,
  LogsSpecs,
  NumaBinding,
  SignalsToHandle,
  ShutdownTimeout,
  VirtualLocalRank,
  UseEnv,
  DryRun,
  Strict,
  CaptureStderr,
  FailureReport,
  ExitCode,
  Omp,
  LogMaxBytes,
  LogOnFull,
  HangTimeout,
  OnAgentDeath,
  Spare,
  ScalePolicy,
  RdzvTokenFile,
  RdzvTlsCa,
  RdzvTlsCert,
  RdzvTlsKey,
  RdzvTlsAllow,
  C10dAllow,
  Http,
  Preflight,
  Completion,
  PythonEntry,
  ManPage,
  Version,
};
inline constexpr std::size_t kOptionCount = static_cast<std::size_t>(OptionId::Version) + 1;

/// Whose option it is. It decides about abbreviations and about the environment's rules.
enum class OptionOrigin : std::uint8_t {
  Torchrun,
  LaunchModule,  // Only with python -m torch.distributed.launch, here muster-launch.
  Muster,
};

struct Flags;  // launcher/flags.h

/// Where its value goes, which also says what it takes: a bool nothing, a vector texts separated by
/// commas, two of which are a literal one. monostate: muster prints something and ends.
using OptionField = std::variant<std::monostate, bool Flags::*, std::string Flags::*,
                                 std::optional<std::string> Flags::*, std::int64_t Flags::*,
                                 std::optional<std::int64_t> Flags::*, double Flags::*,
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
  Hidden,  // Not shown.
};

struct Option {
  OptionId id;
  OptionOrigin origin;
  OptionGroup group;
  OptionField field;
  std::array<std::string_view, 2> names;      // In argparse's order; the second may be empty.
  std::string_view environment;               // Its variable; empty: none.
  std::string_view metavar;                   // What the help calls its value.
  std::optional<std::string_view> fallback;   // Without option and variable; nothing: not set.
  std::span<const std::string_view> choices;  // Empty: anything.
  std::string_view help;

  bool ends_muster() const { return std::holds_alternative<std::monostate>(field); }
  bool takes_value() const {
    return ends_muster() ? !choices.empty() : !std::holds_alternative<bool Flags::*>(field);
  }
  /// The name to show: the long one with dashes.
  std::string_view long_name() const { return names[0].starts_with("--") ? names[0] : names[1]; }
  /// "-m", or empty.
  std::string_view short_name() const {
    return names[0].starts_with("--") ? std::string_view{} : names[0];
  }
  /// argparse's name for it in messages: every spelling, with slashes between.
  std::string display_name() const;
};

std::span<const Option> all_options();
const Option& option(OptionId id);
/// Whether this program knows the option: --use-env belongs to muster-launch only.
bool is_known(const Option& option, bool launch_module);

}  // namespace muster
