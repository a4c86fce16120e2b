// The help before it is fitted to a terminal, and the parts that it shares with the manual page;
// declared in texts.h.
#include "launcher/texts.h"

namespace muster {
namespace {

constexpr std::string_view kIntroduction =
    "  muster --standalone --nproc-per-node=8 train.py --epochs 10\n"
    "  muster --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id=job7 \\\n"
    "         --rdzv-endpoint=node0:29400 train.py     # the same on each node\n"
    "\n"
    "Starts the workers of a distributed PyTorch job on this node, watches them and starts them "
    "again when they fail. Takes torchrun's options. [NAME, default VALUE] behind an option: the "
    "variable that stands for it, and its default. More: man muster.\n";

constexpr std::string_view kClosing =
    "The command line overrides the variable, and the variable overrides the default; an empty "
    "variable counts as not set. Names of several words may also be written with underscores, and "
    "torchrun's may be cut short where that is unambiguous. Everything behind training_script is "
    "the script's own. Exit status: 0 when all workers succeed, 1 when one fails for good or a "
    "value "
    "is wrong, 2 when the command line cannot be read; --exit-code=propagate passes on a worker's "
    "status.";

void append_explained(std::string& out, const Option& option) {
  out.append("  ").append(option_head(option)).append("\t").append(option.help);
  if (const std::string more = default_and_variable(option); !more.empty())
    out.append(" ").append(more);
  out += '\n';
}

std::string choices_text(const Option& option) {
  std::string text;
  for (const std::string_view choice : option.choices)
    text.append(text.empty() ? "" : "|").append(choice);
  return text;
}

}  // namespace

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
    case OptionGroup::Inert:
      return "Accepted for torchrun's sake";
  }
  return {};
}

std::string option_head(const Option& option) {
  std::string head;
  if (!option.short_name().empty()) head.append(option.short_name()).append(", ");
  head.append(option.long_name());
  if (!option.takes_value()) return head;
  const bool is_optional = !option.bare.empty();
  head.append(is_optional ? "[=" : " ");
  if (option.choices.empty()) return head.append(option.metavar);
  if (is_optional) return head.append(choices_text(option)).append("]");
  return head.append("{").append(choices_text(option)).append("}");
}

std::string default_and_variable(const Option& option) {
  std::string text(option.environment);
  if (option.fallback && !option.fallback->empty())
    text.append(text.empty() ? "" : ", ").append("default ").append(*option.fallback);
  return text.empty() ? text : "[" + text + "]";
}

std::string make_help(bool launch_module) {
  std::string text(kIntroduction);
  for (int i = 0; i < kOptionGroupCount; ++i) {
    const auto group = static_cast<OptionGroup>(i);
    text.append("\n").append(heading(group)).append(":\n");
    for (const Option& option : all_options())
      if (option.group == group && !option.is_hidden && is_known(option, launch_module))
        append_explained(text, option);
  }
  return text.append("\n").append(kClosing).append("\n");
}

}  // namespace muster
