#include "launcher/help.h"

#include <algorithm>

#include "rendezvous/core/build_info.h"
#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

constexpr std::string_view kIntroduction =
    "Starts the workers of a distributed PyTorch job on this node, watches them and starts them "
    "again when they fail. Takes torchrun's options and PET_ variables.";

constexpr std::string_view kClosing =
    "In brackets: the variable that stands for the option, and its default. The line goes before "
    "the variable, the variable before the "
    "default; an empty variable counts as not set. Names of several words may also be written with "
    "underscores, and torchrun's may be cut short where that is unambiguous. Everything behind "
    "training_script is the "
    "script's own. Exit status: 0 when all workers succeed, 1 when one fails for good, 2 when the "
    "command line is wrong.";

void append_wrapped(std::string& out, std::string_view text, std::size_t indent,
                    std::size_t columns) {
  for (const std::string& line : wrap(text, columns > indent + 20 ? columns - indent : 20))
    out.append(indent, ' ').append(line).append("\n");
}

void append_option(std::string& out, const Option& option, std::size_t columns) {
  // The explanation stands beside the name where the terminal is wide enough, else below it.
  const std::size_t indent = columns >= 76 ? 30 : 6;
  const std::string head = "  " + option_head(option);
  std::string text(option.help);
  if (const std::string more = default_and_variable(option); !more.empty())
    text.append(" ").append(more);
  std::string body;
  append_wrapped(body, text, indent, columns);
  if (head.size() + 2 <= indent) {
    body.replace(0, head.size(), head);
    out += body;
  } else {
    out.append(head).append("\n").append(body);
  }
}

}  // namespace

std::vector<std::string> wrap(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  for (const std::string_view word : split(text, ' ')) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > columns)
      lines.emplace_back(word);
    else
      lines.back().append(" ").append(word);
  }
  return lines;
}

std::string_view heading(OptionGroup group) {
  switch (group) {
    case OptionGroup::Workers:
      return "Nodes and workers";
    case OptionGroup::Program:
      return "What is run";
    case OptionGroup::Rendezvous:
      return "How the nodes meet";
    case OptionGroup::FixedRanks:
      return "Nodes with fixed ranks (--rdzv-backend static)";
    case OptionGroup::Logs:
      return "Output and logs";
    case OptionGroup::Failures:
      return "Failures and the end of the job";
    case OptionGroup::Devices:
      return "Devices and CPUs";
    case OptionGroup::Muster:
      return "About muster";
    case OptionGroup::Hidden:
      break;
  }
  return {};
}

std::string option_head(const Option& option) {
  std::string head;
  if (!option.short_name().empty()) head.append(option.short_name()).append(", ");
  head.append(option.long_name());
  if (!option.takes_value()) return head;
  head += ' ';
  if (option.choices.empty()) return head.append(option.metavar);
  for (const std::string_view choice : option.choices)
    head.append(choice == option.choices.front() ? "{" : "|").append(choice);
  return head.append("}");
}

std::string default_and_variable(const Option& option) {
  std::string text(option.environment);
  if (option.fallback && !option.fallback->empty())
    text.append(text.empty() ? "" : ", ").append("default ").append(*option.fallback);
  return text.empty() ? text : "[" + text + "]";
}

std::string usage_line(const ProgramName& program) {
  return "usage: " + program.shown + " [options] training_script [arguments of the script ...]\n";
}

std::string usage_error_text(const ProgramName& program, std::string_view message) {
  std::string text = usage_line(program);
  return text.append(program.shown).append(": error: ").append(message).append("\n");
}

std::string version_text() {
  return build_text("muster");
}

std::string help_text(const ProgramName& program, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, 40)) - 2;  // As argparse does.
  std::string text = usage_line(program) + "\n";
  append_wrapped(text, kIntroduction, 0, width);
  constexpr auto kGroups = static_cast<int>(OptionGroup::Hidden);
  for (int i = 0; i < kGroups; ++i) {
    const auto group = static_cast<OptionGroup>(i);
    text.append("\n").append(heading(group)).append(":\n");
    for (const Option& option : all_options())
      if (option.group == group && is_known(option, program.launch_module))
        append_option(text, option, width);
  }
  text += '\n';
  append_wrapped(text, kClosing, 0, width);
  return text;
}

std::string early_exit_text(const EarlyExit& early, const ProgramName& program, int columns) {
  switch (early.option) {
    case OptionId::Version:
      return version_text();
    case OptionId::Completion:
      return completion_script(early.value);
    case OptionId::ManPage:
      return man_page();
    default:
      return help_text(program, columns);
  }
}

}  // namespace muster
