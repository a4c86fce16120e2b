#include "musterctl/completion.h"

namespace muster::ctl {

const Subcommand kSubcommands[15] = {
    {"runs", "", "--endpoint --rdzv-token-file --json", "The runs of a musterd"},
    {"status", "[RUN]", "--endpoint --rdzv-token-file --json --watch",
     "One run, who is missing, its history"},
    {"nodes", "[RUN]", "--endpoint --rdzv-token-file --json", "The nodes of a run, by rank"},
    {"why", "[RUN]", "--endpoint --rdzv-token-file --json", "What failed first, and what followed"},
    {"logs", "RUN RANK", "--endpoint --rdzv-token-file --follow --stderr --all",
     "The output of one worker"},
    {"stacks", "RUN [RANK]", "--endpoint --rdzv-token-file",
     "Where the workers stand: their stacks, now"},
    {"restart", "RUN", "--endpoint --rdzv-token-file",
     "Restart all workers of a run; costs none of its restarts"},
    {"stop", "RUN", "--endpoint --rdzv-token-file", "End a run for all its nodes"},
    {"drain", "RUN NODE", "--endpoint --rdzv-token-file",
     "A node leaves the run at the next round, and stays out"},
    {"exclude", "RUN NODE", "--endpoint --rdzv-token-file",
     "A node leaves the run now, and stays out"},
    {"allow", "RUN NODE", "--endpoint --rdzv-token-file",
     "Let a node in again that was drained or excluded"},
    {"open", "", "--endpoint --rdzv-token-file", "A link to the page of a musterd with a token"},
    {"key", "", "--rdzv-token-file", "The key by which other programs may read from musterd"},
    {"ps", "", "--json", "The jobs of this machine, without a daemon"},
    {"doctor", "",
     "--endpoint --rdzv-token-file --rdzv-endpoint --nodes --rdzv-id --local-addr --no-torch "
     "--log-dir --checkpoint-dir --quick --json",
     "Checks what breaks jobs of several nodes"},
};

namespace {

std::string names() {
  std::string text;
  for (const Subcommand& command : kSubcommands)
    text.append(text.empty() ? "" : " ").append(command.name);
  return text;
}

// A shell command that prints the ids of musterd's runs, or nothing if musterd does not answer. It
// leaves out ids with characters that a shell would have to quote. The JSON is one line without
// spaces between its parts.
constexpr std::string_view kRuns =
    "musterctl runs --json 2>/dev/null | sed 's/{\"id\":\"/\\n/g' | "
    "sed -n 's/^\\([A-Za-z0-9._-]*\\)\",\"state\".*/\\1/p'";

// A shell command that prints the names of a run's nodes. @ stands for the shell's expression for
// the run.
constexpr std::string_view kNodes =
    "musterctl nodes @ --json 2>/dev/null | sed 's/{\"name\":\"/\\n/g' | "
    "sed -n 's/^\\([A-Za-z0-9._:-]*\\)\",\"address\".*/\\1/p'";

std::string nodes_of(std::string_view run) {
  std::string text(kNodes);
  return text.replace(text.find('@'), 1, run);
}

bool takes_node(const Subcommand& command) {
  return command.arguments.find("NODE") != std::string_view::npos;
}

std::string bash_script() {
  std::string text =
      "# bash completion for musterctl: eval \"$(musterctl --completion bash)\"\n"
      "_musterctl() {\n"
      "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
      "    if ((COMP_CWORD == 1)); then\n"
      "        words='" +
      names() +
      " --help --version --completion'\n"
      "    else\n"
      "        case $command in\n";
  for (const Subcommand& command : kSubcommands) {
    text.append("        ").append(command.name).append(") words='--help ");
    text.append(options_of(command)).append("'");
    if (!command.arguments.empty())
      text.append("\n            if ((COMP_CWORD == 2)); then words+=\" $(")
          .append(kRuns)
          .append(")\"; fi");
    if (takes_node(command))
      text.append("\n            if ((COMP_CWORD == 3)); then words+=\" $(")
          .append(nodes_of("\"${COMP_WORDS[2]}\""))
          .append(")\"; fi");
    text += " ;;\n";
  }
  return text +
         "        esac\n"
         "    fi\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
         "}\n"
         "complete -F _musterctl musterctl\n";
}

std::string zsh_script() {
  std::string text =
      "#compdef musterctl\n"
      "# zsh completion for musterctl: eval \"$(musterctl --completion zsh)\"\n"
      "_musterctl() {\n"
      "    local -a commands options\n"
      "    commands=(\n";
  for (const Subcommand& command : kSubcommands)
    text.append("        '").append(command.name).append(":").append(command.help).append("'\n");
  text +=
      "    )\n"
      "    if ((CURRENT == 2)); then _describe command commands; return; fi\n"
      "    case $words[2] in\n";
  for (const Subcommand& command : kSubcommands) {
    text.append("    ").append(command.name).append(") options=(--help ");
    text.append(options_of(command)).append(")");
    if (!command.arguments.empty())
      text.append("\n        if ((CURRENT == 3)); then options+=(${(f)\"$(")
          .append(kRuns)
          .append(")\"}); fi");
    if (takes_node(command))
      text.append("\n        if ((CURRENT == 4)); then options+=(${(f)\"$(")
          .append(nodes_of("\"$words[3]\""))
          .append(")\"}); fi");
    text += " ;;\n";
  }
  return text +
         "    esac\n"
         "    compadd -- $options\n"
         "}\n"
         "compdef _musterctl musterctl\n";
}

std::string fish_script() {
  std::string text =
      "# fish completion for musterctl: musterctl --completion fish | source\n"
      "complete -c musterctl -f\n";
  for (const Subcommand& command : kSubcommands) {
    text.append("complete -c musterctl -n __fish_use_subcommand -a ")
        .append(command.name)
        .append(" -d '")
        .append(command.help)
        .append("'\n");
    const std::string options = options_of(command);
    std::string_view rest = options;
    const std::string seen = " -n '__fish_seen_subcommand_from " + std::string(command.name) + "'";
    while (!rest.empty()) {
      const std::string_view option = rest.substr(0, rest.find(' '));
      rest.remove_prefix(option.size() + (option.size() < rest.size() ? 1 : 0));
      text.append("complete -c musterctl").append(seen).append(" -l ");
      text.append(option.substr(2)).append("\n");
    }
    if (!command.arguments.empty())
      text.append("complete -c musterctl")
          .append(seen)
          .append(" -a \"(")
          .append(
              "musterctl runs --json 2>/dev/null | string match -rga "
              "'\\\"id\\\":\\\"([A-Za-z0-9._-]+)\\\",\\\"state'")
          .append(")\"\n");
    if (takes_node(command))
      text.append("complete -c musterctl")
          .append(seen)
          .append(" -a \"(")
          .append(
              "musterctl nodes (commandline -opc)[3] --json 2>/dev/null | string match -rga "
              "'\\\"name\\\":\\\"([A-Za-z0-9._:-]+)\\\",\\\"address'")
          .append(")\"\n");
  }
  return text;
}

}  // namespace

std::string options_of(const Subcommand& command) {
  std::string options(command.options);
  if (command.options.find("--endpoint") != std::string_view::npos)
    options += " --tls-ca --tls-cert --tls-key";
  return options;
}

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return {};
}

}  // namespace muster::ctl
