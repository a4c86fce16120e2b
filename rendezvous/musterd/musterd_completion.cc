// Writes completion scripts from the table of options.
#include <algorithm>
#include <string>
#include <string_view>

#include "rendezvous/musterd/musterd_config.h"

namespace muster {
namespace {

struct CompletedOption {
  std::string name;   // Without the leading hyphens.
  std::string about;  // The description, without quotes.
  std::string type;   // The type of the value. Empty: the option is a flag.
};

std::vector<CompletedOption> completed_options(const CLI::App& app) {
  std::vector<CompletedOption> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string about = option->get_description();
    about.erase(std::remove(about.begin(), about.end(), '\''), about.end());
    // In zsh a closing bracket would end the description.
    std::replace(about.begin(), about.end(), '[', '(');
    std::replace(about.begin(), about.end(), ']', ')');
    const bool is_flag = option->get_items_expected_max() == 0;
    std::string type = is_flag ? std::string() : option->get_type_name();
    options.push_back(
        {option->get_lnames().front(), std::move(about), type.substr(0, type.find(':'))});
  }
  return options;
}

/// The words that may follow an option, separated by blanks. Empty: any word.
std::string_view words_after(const CompletedOption& option) {
  if (option.name == "log-level") return "debug info warning error critical";
  if (option.name == "completion") return "bash zsh fish tcsh";
  if (option.name == "c10d-allow") return "off any loopback members";
  return {};
}

std::string bash_script(const std::vector<CompletedOption>& options) {
  std::string words;
  std::string cases;
  for (const CompletedOption& option : options) {
    words += (words.empty() ? "--" : " --") + option.name;
    if (const std::string_view after = words_after(option); !after.empty())
      cases += "        --" + option.name + ") mapfile -t COMPREPLY < <(compgen -W '" +
               std::string(after) + "' -- \"$cur\"); return ;;\n";
    else if (option.type == "FILE" || option.type == "FOLDER")
      cases += "        --" + option.name + ") mapfile -t COMPREPLY < <(compgen -" +
               (option.type == "FILE" ? "f" : "d") + " -- \"$cur\"); return ;;\n";
  }
  return "# bash completion for musterd: eval \"$(musterd --completion bash)\"\n"
         "_musterd() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
         "    case ${COMP_WORDS[COMP_CWORD-1]} in\n" +
         cases +
         "    esac\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         words +
         "' -- \"$cur\")\n"
         "}\n"
         "complete -F _musterd musterd\n";
}

std::string zsh_script(const std::vector<CompletedOption>& options) {
  std::string text =
      "#compdef musterd\n"
      "# zsh completion for musterd: eval \"$(musterd --completion zsh)\"\n"
      "_musterd() {\n"
      "    _arguments \\\n";
  for (const CompletedOption& option : options) {
    text += "        '--" + option.name;
    text += (option.type.empty() ? "[" : "=[") + option.about + "]";
    if (const std::string_view after = words_after(option); !after.empty())
      text += ":value:(" + std::string(after) + ")";
    else if (!option.type.empty())
      text +=
          ":value:" + std::string(option.type == "FILE" || option.type == "FOLDER" ? "_files" : "");
    text += "' \\\n";
  }
  return text + "        && return\n}\ncompdef _musterd musterd\n";
}

std::string fish_script(const std::vector<CompletedOption>& options) {
  std::string text =
      "# fish completion for musterd: musterd --completion fish | source\n"
      "complete -c musterd -f\n";
  for (const CompletedOption& option : options) {
    text += "complete -c musterd -l " + option.name;
    if (!option.type.empty()) text += " -r";
    if (option.type == "FILE" || option.type == "FOLDER") text += " -F";
    if (const std::string_view after = words_after(option); !after.empty())
      text += " -a '" + std::string(after) + "'";
    text += " -d '" + option.about + "'\n";
  }
  return text;
}

// tcsh takes the first rule that fits. `eval "`musterd --completion tcsh`"` makes one line of all
// lines: no comments.
std::string tcsh_script(const std::vector<CompletedOption>& options) {
  std::string rules;
  std::string words;
  for (const CompletedOption& option : options) {
    words.append(words.empty() ? "--" : " --").append(option.name);
    if (option.type.empty()) continue;
    std::string list = "x:" + option.type;
    if (const std::string_view after = words_after(option); !after.empty())
      list = "(" + std::string(after) + ")";
    if (option.type == "FILE") list = "f";
    if (option.type == "FOLDER") list = "d";
    // '@' in place of tcsh's '/': a type may have slashes.
    for (char& each : list)
      if (each == '@') each = ' ';
    rules.append(" 'n@--").append(option.name).append("@").append(list).append("@'");
    rules.append(" 'c@--").append(option.name).append("=@").append(list).append("@'");
  }
  return "complete musterd" + rules + " 'p@*@(" + words + ")@';\n";
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  const std::vector<CompletedOption> options = completed_options(app);
  if (shell == "bash") return bash_script(options);
  if (shell == "tcsh") return tcsh_script(options);
  return shell == "zsh" ? zsh_script(options) : fish_script(options);
}

}  // namespace muster
