#include "launcher/help.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/python_text.h"
#include "base/wrapped_text.h"

namespace muster {
namespace {

// Written by make_texts when muster is built.
constexpr std::string_view kHelp =
#include "launcher/help.inc"
    ;
constexpr std::string_view kLaunchHelp =
#include "launcher/help_launch.inc"
    ;
constexpr std::string_view kBashCompletion =
#include "launcher/completion_bash.inc"
    ;
constexpr std::string_view kZshCompletion =
#include "launcher/completion_zsh.inc"
    ;
constexpr std::string_view kFishCompletion =
#include "launcher/completion_fish.inc"
    ;
constexpr std::string_view kTcshCompletion =
#include "launcher/completion_tcsh.inc"
    ;

// The files of configs/.
constexpr std::string_view kSlurmRecipe =
#include "launcher/recipe_slurm.inc"
    ;
constexpr std::string_view kKubernetesRecipe =
#include "launcher/recipe_kubernetes.inc"
    ;
constexpr std::string_view kDockerRecipe =
#include "launcher/recipe_docker.inc"
    ;
constexpr std::string_view kSystemdRecipe =
#include "launcher/recipe_systemd.inc"
    ;

/// Appends one line of the help as texts.h describes it.
void append_help_line(std::string& out, std::string_view line, std::size_t columns) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos) {
    if (line.empty() || line.ends_with(':') || line.starts_with("  "))
      out.append(line).append("\n");
    else
      out += wrapped_text(line, 0, columns);
    return;
  }
  // The explanation is beside the option if the terminal is wide enough, otherwise below it.
  const std::size_t indent = columns >= 76 ? 30 : 6;
  const std::string_view head = line.substr(0, tab);
  std::string body = wrapped_text(line.substr(tab + 1), indent, columns);
  if (head.size() + 2 <= indent) {
    body.replace(0, head.size(), head);
    out += body;
  } else {
    out.append(head).append("\n").append(body);
  }
}

}  // namespace

std::string usage_line(const ProgramName& program) {
  return "usage: " + program.shown + " [options] training_script [arguments of the script ...]\n";
}

std::string usage_error_text(const ProgramName& program, const UsageError& error) {
  std::string text = usage_line(program);
  text.append(program.shown).append(": error: ").append(error.message).append("\n");
  if (!error.advice.empty()) text.append(program.shown).append(": ").append(error.advice) += '\n';
  return text;
}

std::string version_text() {
  return build_text("muster");
}

std::string help_text(const ProgramName& program, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, 40)) - 2;  // As argparse does.
  std::string text = usage_line(program) + "\n";
  std::string_view help = program.launch_module ? kLaunchHelp : kHelp;
  help.remove_suffix(1);  // The last newline.
  for (const std::string_view line : split(help, '\n'))
    append_help_line(text, line, width);
  return text;
}

std::string_view completion_script(std::string_view shell) {
  if (shell == "zsh") return kZshCompletion;
  if (shell == "fish") return kFishCompletion;
  return shell == "tcsh" ? kTcshCompletion : kBashCompletion;
}

std::string_view recipe(std::string_view system) {
  if (system == "kubernetes") return kKubernetesRecipe;
  if (system == "docker") return kDockerRecipe;
  return system == "systemd" ? kSystemdRecipe : kSlurmRecipe;
}

std::string early_exit_text(const EarlyExit& early, const ProgramName& program, int columns) {
  if (early.what == Prints::Version) return version_text();
  if (early.what == Prints::Recipe) return std::string(recipe(early.value));
  if (early.what == Prints::Completion || early.what == Prints::TorchrunCompletion)
    return std::string(completion_script(early.value));
  return help_text(program, columns);
}

}  // namespace muster
