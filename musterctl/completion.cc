#include "musterctl/completion.h"

#include <algorithm>
#include <span>

namespace muster::ctl {

const Subcommand kSubcommands[15] = {
    {"runs", "", "--endpoint --rdzv-token-file --json", "The runs of a musterd"},
    {"status", "[RUN]", "--endpoint --rdzv-token-file --json --watch",
     "The state of a run: missing nodes, failure, history"},
    {"nodes", "[RUN]", "--endpoint --rdzv-token-file --json", "The nodes of a run, by rank"},
    {"why", "[RUN]", "--endpoint --rdzv-token-file --json", "What failed first, and what followed"},
    {"logs", "RUN RANK", "--endpoint --rdzv-token-file --follow --stderr --tail --all",
     "The output of one worker"},
    {"stacks", "RUN [RANK]", "--endpoint --rdzv-token-file",
     "Where the workers stand: their stacks, now"},
    {"restart", "RUN", "--endpoint --rdzv-token-file",
     "Restart all workers of a run; costs none of its restarts"},
    {"stop", "RUN", "--endpoint --rdzv-token-file", "End a run for all its nodes"},
    {"drain", "RUN NODE", "--endpoint --rdzv-token-file --notice --reason",
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

// A shell command that prints the ids of musterd's runs, or nothing if musterd does not answer.
constexpr std::string_view kRuns = "musterctl completion-words 2>/dev/null";

// The same for the names of a run's nodes. `run` is the shell's expression for the run.
std::string nodes_of(std::string_view run) {
  return std::string("musterctl completion-words ").append(run).append(" 2>/dev/null");
}

constexpr std::string_view kScriptShells = "bash zsh fish tcsh";
constexpr std::string_view kFiles[] = {"--rdzv-token-file", "--tls-ca", "--tls-cert", "--tls-key"};
constexpr std::string_view kFolders[] = {"--log-dir", "--checkpoint-dir"};
constexpr std::string_view kOtherValues[] = {"--endpoint", "--rdzv-endpoint", "--rdzv-id",
                                             "--nodes",    "--local-addr",    "--notice",
                                             "--reason",   "--tail"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string any_of_pattern(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names)
    text.append(text.empty() ? "" : "|").append(name);
  return text;
}

bool takes_node(const Subcommand& command) {
  return command.arguments.find("NODE") != std::string_view::npos;
}

std::string bash_script() {
  std::string text =
      "# bash completion for musterctl: eval \"$(musterctl --completion bash)\"\n"
      "_musterctl() {\n"
      "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
      "    local command=${COMP_WORDS[1]} words=\n"
      "    # bash takes \"--option=value\" apart at the \"=\".\n"
      "    [[ $cur == \"=\" ]] && cur=\n"
      "    [[ $prev == \"=\" ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
      "    case $prev in\n"
      "        " +
      any_of_pattern(kFiles) +
      ") mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n"
      "        " +
      any_of_pattern(kFolders) +
      ") mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); return ;;\n"
      "        --completion) mapfile -t COMPREPLY < <(compgen -W '" +
      std::string(kScriptShells) +
      "' -- \"$cur\"); return ;;\n"
      "        " +
      any_of_pattern(kOtherValues) +
      ") COMPREPLY=(); return ;;\n"
      "    esac\n"
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
      "    case $words[CURRENT-1] in\n"
      "    " +
      any_of_pattern(kFiles) +
      ") _files; return ;;\n"
      "    " +
      any_of_pattern(kFolders) +
      ") _files -/; return ;;\n"
      "    --completion) compadd " +
      std::string(kScriptShells) +
      "; return ;;\n"
      "    " +
      any_of_pattern(kOtherValues) +
      ") return ;;\n"
      "    esac\n"
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

// fish's condition: the command, and so many words before the one that is completed.
std::string seen_with_words(const Subcommand& command, int words) {
  return " -n '__fish_seen_subcommand_from " + std::string(command.name) +
         "; and test (count (commandline -opc)) -eq " + std::to_string(words) + "'";
}

std::string fish_script() {
  std::string text =
      "# fish completion for musterctl: musterctl --completion fish | source\n"
      "complete -c musterctl -f\n"
      "complete -c musterctl -l completion -x -a '" +
      std::string(kScriptShells) + "'\n";
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
      text.append(option.substr(2));
      if (is_in(kFiles, option)) text += " -r -F";
      if (is_in(kFolders, option)) text += " -x -a '(__fish_complete_directories)'";
      if (is_in(kOtherValues, option)) text += " -x";
      text += "\n";
    }
    if (!command.arguments.empty())
      text.append("complete -c musterctl")
          .append(seen_with_words(command, 2))
          .append(" -a '(")
          .append(kRuns)
          .append(")'\n");
    if (takes_node(command))
      text.append("complete -c musterctl")
          .append(seen_with_words(command, 3))
          .append(" -a '(")
          .append(nodes_of("(commandline -opc)[3]"))
          .append(")'\n");
  }
  return text;
}

// tcsh takes the first rule that fits, and cannot tell the options of one command from those of
// another. `eval "`musterctl --completion tcsh`"` makes one line of all lines: no comments.
std::string tcsh_script() {
  std::string text = "complete musterctl 'n/--completion/(" + std::string(kScriptShells) +
                     ")/' 'c/--completion=/(" + std::string(kScriptShells) + ")/'";
  std::string options = "--help --version --completion";
  for (const Subcommand& command : kSubcommands) {
    const std::string own = options_of(command);
    std::string_view rest = own;
    while (!rest.empty()) {
      const std::string_view option = rest.substr(0, rest.find(' '));
      rest.remove_prefix(option.size() + (option.size() < rest.size() ? 1 : 0));
      if ((" " + options + " ").find(" " + std::string(option) + " ") != std::string::npos)
        continue;
      options.append(" ").append(option);
      std::string_view list;
      if (is_in(kFiles, option)) list = "f";
      if (is_in(kFolders, option)) list = "d";
      if (is_in(kOtherValues, option)) list = "x:VALUE";
      if (list.empty()) continue;
      text.append(" 'n/").append(option).append("/").append(list).append("/'");
      text.append(" 'c/").append(option).append("=/").append(list).append("/'");
    }
  }
  text += " 'C/-/(" + options + ")/' 'p/1/(" + names() + ")/'";
  for (const Subcommand& command : kSubcommands) {
    if (command.arguments.empty()) continue;
    text.append(" 'n@").append(command.name).append("@`sh -c \"").append(kRuns).append("\"`@'");
    if (takes_node(command))
      text.append(" 'N@")
          .append(command.name)
          .append("@`sh -c \"")
          .append(nodes_of("$:-1"))
          .append("\"`@'");
  }
  return text + ";\n";
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
  if (shell == "tcsh") return tcsh_script();
  return {};
}

}  // namespace muster::ctl
