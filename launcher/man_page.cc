// The manual page, declared in texts.h.
#include "launcher/texts.h"

namespace muster {
namespace {

/// Escapes text so that man(7) shows it unchanged: hyphens stay hyphens, and no line begins with a
/// command.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  if (result.starts_with('.') || result.starts_with('\'')) result.insert(0, "\\&");
  return result;
}

void append_option(std::string& out, const Option& option) {
  out.append(".TP\n.B ").append(shown(option_head(option))).append("\n");
  out.append(shown(option.help));
  if (const std::string more = default_and_variable(option); !more.empty())
    out.append("\n").append(shown(more));
  out += '\n';
}

constexpr std::string_view kHead =
    ".SH NAME\n"
    "muster, torchrun, muster\\-launch \\- start the workers of a distributed PyTorch job\n"
    ".SH SYNOPSIS\n"
    ".B muster\n"
    ".RI [ options ]\n"
    ".I training_script\n"
    ".RI [ \"arguments of the script\" ...]\n"
    ".SH DESCRIPTION\n"
    "muster runs on each node of a job. It starts the node's workers, lets them meet, watches "
    "them,\n"
    "starts them again when one fails, collects their output and ends with all of them. It takes\n"
    "torchrun's options and variables, and works under the name torchrun. Under the name\n"
    ".B muster\\-launch\n"
    "it behaves as python \\-m torch.distributed.launch does: the script is given "
    "\\-\\-local\\-rank=N\n"
    "as its first argument.\n"
    ".PP\n"
    "Everything behind\n"
    ".I training_script\n"
    "is the script's own. A name of several words may also be written with underscores. An option "
    "of\n"
    "torchrun's may be cut short where that is unambiguous. The command line overrides the\n"
    "variable, and the variable overrides the default; an empty variable counts as not set.\n";

constexpr std::string_view kTail =
    ".SH ENVIRONMENT\n"
    "Besides the variables named above, the most important ones (docs/compatibility.md and\n"
    "docs/rendezvous.md have all):\n"
    ".TP\n.B PYTHON_EXEC\n"
    "The Python that runs the script. Without it: that of the environment whose muster was called\n"
    "by its path, that of the active virtual environment (VIRTUAL_ENV) or conda environment\n"
    "(CONDA_PREFIX), the one beside the torchrun that was called, python3, python.\n"
    ".TP\n.B TORCH_ELASTIC_SHUTDOWN_TIMEOUT\n"
    "Seconds, for \\-\\-shutdown\\-timeout where that is not given.\n"
    ".TP\n.B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE\n"
    "For \\-\\-log\\-line\\-prefix\\-template where that is not given.\n"
    ".TP\n.B OMP_NUM_THREADS\n"
    "Where it is not set and there is more than one worker, each gets 1.\n"
    ".TP\n.B CUDA_VISIBLE_DEVICES, ZE_AFFINITY_MASK\n"
    "The devices that \\-\\-nproc\\-per\\-node gpu, xpu and auto count.\n"
    ".TP\n.B COLUMNS\n"
    "The width of the help.\n"
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nAll workers ended well.\n"
    ".TP\n.B 1\nA worker failed and no restart was left; or the value of an option is wrong, or "
    "options\n"
    "contradict each other; or the rendezvous failed; or a signal ended the job.\n"
    ".TP\n.B 2\nThe command line cannot be read, or asks for something that muster does not "
    "support.\n"
    ".PP\nWith \\-\\-exit\\-code=propagate: in place of 1 the status of the worker that failed "
    "first, and\n"
    "128+N after signal N.\n"
    ".SH EXAMPLES\n"
    "Four workers on this node:\n"
    ".PP\n.RS 4\n.nf\nmuster \\-\\-nproc\\-per\\-node 4 train.py \\-\\-epochs 10\n.fi\n.RE\n"
    ".PP\n"
    "One on each GPU, three restarts, output to files and to the terminal:\n"
    ".PP\n.RS 4\n.nf\n"
    "muster \\-\\-nproc\\-per\\-node gpu \\-\\-max\\-restarts 3 \\-\\-log\\-dir logs \\-t 3 "
    "train.py\n"
    ".fi\n.RE\n"
    ".PP\n"
    "What would be run:\n"
    ".PP\n.RS 4\n.nf\nmuster \\-\\-dry\\-run \\-\\-nproc\\-per\\-node gpu:1,3,5 \\-m "
    "package.train\n.fi\n.RE\n";

}  // namespace

std::string make_man_page() {
  std::string text = ".TH MUSTER 1 \"\" \"muster " MUSTER_VERSION "\" \"User Commands\"\n";
  text += kHead;
  text += ".SH OPTIONS\n";
  for (int i = 0; i < kOptionGroupCount; ++i) {
    const auto group = static_cast<OptionGroup>(i);
    text.append(".SS ").append(shown(heading(group))).append("\n");
    for (const Option& option : all_options())
      if (option.group == group && !option.is_hidden) append_option(text, option);
  }
  text += kTail;
  return text;
}

}  // namespace muster
