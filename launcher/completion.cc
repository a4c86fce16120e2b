// The completion scripts for shells, declared in texts.h.
#include <functional>
#include <utility>

#include "launcher/flags.h"
#include "launcher/texts.h"

namespace muster {
namespace {

constexpr std::string_view kPrograms = "muster torchrun muster-launch";

std::string joined(const std::function<bool(const Option&)>& is_wanted, std::string_view between,
                   const std::function<bool(std::string_view)>& is_wanted_name = {}) {
  std::string text;
  for (const Option& option : all_options()) {
    if (!is_wanted(option)) continue;
    for (const std::string_view name : option.names)
      if (!name.empty() && (!is_wanted_name || is_wanted_name(name)))
        text.append(text.empty() ? "" : between).append(name);
  }
  return text;
}

/// The values that a shell offers: the choices, or of an option that takes other values, too, those
/// that have a name. Empty: none.
std::string offered_values(const Option& option) {
  constexpr std::pair<OptionField, std::string_view> kNamed[] = {
      {&Flags::rdzv_backend, "c10d etcd etcd-v2 static"},
      {&Flags::nproc_per_node, "auto gpu xpu cpu"},
      {&Flags::event_log_handler, "null console"},
      {&Flags::redirects, "0 1 2 3"},
      {&Flags::tee, "0 1 2 3"},
      {&Flags::c10d_allow, "off any loopback members"},
      {&Flags::omp, "auto"},
      {&Flags::logs_specs, "default"},
  };
  std::string text;
  for (const std::string_view choice : option.choices)
    text.append(text.empty() ? "" : " ").append(choice);
  for (const auto& [field, values] : kNamed)
    if (option.field == field) text = values;
  return text;
}

/// Whether the word behind the option is its value.
bool takes_word(const Option& option) {
  return option.takes_value() && option.bare.empty();
}

bool takes_folder(const Option& option) {
  return option.metavar == "DIR";
}
bool takes_file(const Option& option) {
  return option.metavar == "FILE";
}

/// The help up to the first full stop, colon or semicolon: a list of completions needs short lines.
std::string short_help(const Option& option) {
  std::string_view text = option.help;
  text = text.substr(0, text.find_first_of(";:"));
  if (text.ends_with('.')) text.remove_suffix(1);
  if (const auto stop = text.find(". "); stop != std::string_view::npos)
    text = text.substr(0, stop);
  return std::string(text);
}

bool has_underscore(std::string_view name) {
  return name.find('_') != name.npos;
}

std::string bash_script() {
  const auto is_offered = [](const Option& option) {
    return is_known(option, false) && !option.is_hidden;
  };
  std::string text = "# bash completion for muster: eval \"$(muster --completion bash)\"\n";
  text +=
      "_muster() {\n"
      "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i\n"
      "    COMPREPLY=()\n"
      "    # bash takes \"--option=value\" apart at the \"=\".\n"
      "    [[ $cur == \"=\" ]] && cur=\n"
      "    [[ $prev == \"=\" ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
      "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "        case ${COMP_WORDS[i]} in\n"
      "            ";
  text += joined(takes_word, "|") +
          ")\n"
          "                [[ ${COMP_WORDS[i+1]} == \"=\" ]] && ((i++))\n"
          "                ((i++)) ;;\n"
          "            -*) ;;\n"
          "            *)  # Behind the script: its own arguments.\n"
          "                compopt -o default 2>/dev/null\n"
          "                return ;;\n"
          "        esac\n"
          "    done\n"
          "    case $prev in\n";
  for (const Option& option : all_options()) {
    if (!option.takes_value()) continue;
    std::string reply;
    if (const std::string values = offered_values(option); !values.empty())
      reply = "compgen -W '" + values + "' -- \"$cur\"";
    else if (takes_folder(option))
      reply = "compgen -d -- \"$cur\"";
    else if (takes_file(option))
      reply = "compgen -f -- \"$cur\"";
    else
      continue;
    text.append("        ").append(option.names[0]);
    if (!option.names[1].empty()) text.append("|").append(option.names[1]);
    text.append(") COMPREPLY=($(").append(reply).append(")); return ;;\n");
  }
  text += "        " + joined(takes_word, "|") +
          ") return ;;\n"
          "    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        # Offer names with underscores only after the user has typed one.\n"
          "        local names='" +
          joined(is_offered, " ", [&](std::string_view name) { return !has_underscore(name); }) +
          "'\n"
          "        [[ $cur == *_* ]] && names='" +
          joined(is_offered, " ", has_underscore) +
          "'\n"
          "        [[ $1 == *muster-launch ]] && names+=' --use-env --use_env'\n"
          "        COMPREPLY=($(compgen -W \"$names\" -- \"$cur\"))\n"
          "    else\n"
          "        compopt -o default 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _muster ";
  return text.append(kPrograms).append("\n");
}

/// Escapes text for '...' in a specification of zsh's _arguments, where brackets and colons have a
/// meaning.
std::string for_zsh(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// One _arguments specification per name of the option: for the names with an underscore, or for
/// those without.
std::string zsh_specs(const Option& option, bool with_underscore) {
  std::string action;
  if (option.takes_value()) {
    action = ":" + for_zsh(option.metavar) + ":";
    if (const std::string values = offered_values(option); !values.empty())
      action += "(" + values + ")";
    if (takes_folder(option)) action += "_directories";
    if (takes_file(option)) action += "_files";
  }
  std::string specs;
  for (const std::string_view name : option.names) {
    if (name.empty() || has_underscore(name) != with_underscore) continue;
    const std::string_view suffix = !option.takes_value() ? "" : name.starts_with("--") ? "=" : "+";
    specs.append("        '").append(name).append(suffix).append("[");
    specs.append(for_zsh(short_help(option))).append("]").append(action).append("'\n");
  }
  return specs;
}

std::string zsh_script() {
  // zsh offers the spellings with dashes. `spelled` has those with underscores. Unless the user
  // types an underscore, they get "!" in front: zsh understands them but does not offer them.
  std::string launch;
  std::string launch_spelled;
  std::string all;
  std::string spelled;
  for (const Option& option : all_options()) {
    if (option.is_hidden) continue;
    const bool is_launch = option.origin == OptionOrigin::LaunchModule;
    (is_launch ? launch : all) += zsh_specs(option, false);
    (is_launch ? launch_spelled : spelled) += zsh_specs(option, true);
  }
  return "#compdef " + std::string(kPrograms) +
         "\n# zsh completion for muster: put it into $fpath as _muster, or\n"
         "# eval \"$(muster --completion zsh)\"\n"
         "_muster() {\n"
         "    local -a offered spelled\n"
         "    offered=(\n" +
         all + "    )\n    spelled=(\n" + spelled +
         "    )\n"
         "    if [[ $service == muster-launch ]]; then\n"
         "        offered+=(\n" +
         launch + "        )\n        spelled+=(\n" + launch_spelled +
         "        )\n"
         "    fi\n"
         "    # Offer names with underscores only after the user has typed one.\n"
         "    [[ $PREFIX == *_* ]] || spelled=('!'${^spelled})\n"
         "    _arguments -s -S : $offered $spelled '1:script:_files' \\\n"
         "        '*::arguments of the script:_files'\n"
         "}\n"
         "if [[ $funcstack[1] == _muster ]]; then\n"
         "    _muster \"$@\"\n"
         "else\n"
         "    compdef _muster " +
         std::string(kPrograms) + "\nfi\n";
}

std::string for_fish(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// A `complete` command for `programs`: the option's names with or without underscores, and the
/// values that they take. Empty if the option has no such name.
std::string fish_line(const Option& option, std::string_view programs, bool with_underscore) {
  std::string names;
  for (const std::string_view name : option.names) {
    if (name.empty() || has_underscore(name) != with_underscore) continue;
    const bool is_long = name.starts_with("--");
    names.append(is_long ? " -l " : " -s ").append(name.substr(is_long ? 2 : 1));
  }
  if (names.empty()) return {};
  std::string takes;
  if (takes_folder(option))
    takes = " -x -a '(__fish_complete_directories)'";
  else if (takes_file(option))
    takes = " -r";
  else if (const std::string values = offered_values(option); !values.empty())
    takes = " -x -a '" + values + "'";
  else if (option.takes_value())
    takes = " -x";
  return "    complete -c " + std::string(programs) + " -n '__muster_before_script" +
         (with_underscore ? "; and __muster_underscores'" : "'") + names + takes + " -d '" +
         for_fish(short_help(option)) + "'\n";
}

std::string fish_script() {
  std::string text =
      "# fish completion for muster: muster --completion fish | source\n"
      "function __muster_before_script\n"
      "    set -l words (commandline -opc)\n"
      "    set -e words[1]\n"
      "    set -l is_value 0\n"
      "    for word in $words\n"
      "        if test $is_value -eq 1\n"
      "            set is_value 0\n"
      "            continue\n"
      "        end\n"
      "        switch $word\n"
      "            case ";
  text += joined(takes_word, " ") +
          "\n                set is_value 1\n"
          "            case '-*'\n"
          "            case '*'\n"
          "                return 1\n"
          "        end\n"
          "    end\n"
          "    return 0\n"
          "end\n"
          "# Offer names with underscores only after the user has typed one.\n"
          "function __muster_underscores\n"
          "    set -l words (commandline -opc)\n"
          "    string match -q -- '*_*' (commandline -ct) $words[-1]\n"
          "end\n"
          "for program in ";
  text.append(kPrograms).append("\n");
  std::string launch;
  for (const Option& option : all_options()) {
    if (option.is_hidden) continue;
    const bool is_launch = option.origin == OptionOrigin::LaunchModule;
    for (const bool with_underscore : {false, true})
      (is_launch ? launch : text) +=
          fish_line(option, is_launch ? "muster-launch" : "$program", with_underscore);
  }
  return text + "end\n" + launch;
}

/// tcsh's rules for the value of the option: behind each of its names, and behind "name=".
std::string tcsh_value_rules(const Option& option) {
  std::string list = "x:";
  list += option.metavar;
  if (const std::string values = offered_values(option); !values.empty()) list = "(" + values + ")";
  if (takes_folder(option)) list = "d";
  if (takes_file(option)) list = "f";
  std::string rules;
  for (const std::string_view name : option.names) {
    if (name.empty()) continue;
    rules.append(" 'n/").append(name).append("/").append(list).append("/'");
    if (name.starts_with("--"))
      rules.append(" 'c/").append(name).append("=/").append(list).append("/'");
  }
  return rules;
}

/// tcsh takes the first rule that fits. It has no rule for "behind the script": there it offers
/// muster's options, too. `eval "`muster --completion tcsh`"` makes one line of all lines, so each
/// line ends with a semicolon, and there are no comments.
std::string tcsh_script() {
  std::string text;
  for (const std::string_view program : {"muster", "torchrun", "muster-launch"}) {
    const auto is_offered = [&](const Option& option) {
      return is_known(option, program == "muster-launch") && !option.is_hidden;
    };
    text.append("complete ").append(program);
    for (const Option& option : all_options())
      if (option.takes_value()) text += tcsh_value_rules(option);
    // Names with underscores are offered only after the user has typed one.
    text += " 'C/-*_/(" + joined(is_offered, " ", has_underscore) + ")/' 'C/-/(" +
            joined(is_offered, " ", [](std::string_view name) { return !has_underscore(name); }) +
            ")/' 'p/*/f/';\n";
  }
  return text;
}

}  // namespace

std::string make_completion(std::string_view shell) {
  if (shell == "zsh") return zsh_script();
  if (shell == "tcsh") return tcsh_script();
  return shell == "fish" ? fish_script() : bash_script();
}

}  // namespace muster
