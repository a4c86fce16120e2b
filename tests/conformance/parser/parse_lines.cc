// Reads command lines and prints how muster's parser understands each. parser_diff.py compares that
// with torchrun's own parser.
//
// Input and output have one JSON value in each line. Input: {"argv": [...], "env": {...}, "launch":
// bool}. Output: {"outcome": "ok" | "exit" | "error", ..., "script_at": number}.
//
// For {"cuda_visible_devices": "...", "count": number, "uuids": [...]} the output is the number of
// visible GPUs (devices_diff.py).
//
// With arguments, it prints the same as muster does for them: parse_lines --completion bash.
#include <iostream>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <nlohmann/json.hpp>

#include "launcher/argparse.h"
#include "launcher/devices.h"
#include "launcher/flags.h"
#include "launcher/help.h"
#include "launcher/option_table.h"

namespace {

using muster::Flags;
using nlohmann::json;

std::string dest_of(const muster::Option& option) {
  std::string dest(option.long_name().substr(2));
  for (char& c : dest)
    if (c == '-') c = '_';
  return dest;
}

// As text: JSON has neither infinity nor "not a number".
json value_of(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g", number);
  return json{{"float", text}};
}

template <typename T>
json value_of(const T& value) {
  return value;
}

template <typename T>
json value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : json();
}

json value_of(const Flags& flags, const muster::Option& option) {
  const auto value = [&](auto field) -> json {
    using Field = decltype(field);
    const bool unset = flags.source(option.field) == muster::Source::Default && !option.fallback;
    if (std::is_same_v<Field, std::string Flags::*> && unset) return nullptr;
    if constexpr (std::is_same_v<Field, muster::Prints>)
      return nullptr;
    else
      return value_of(flags.*field);
  };
  return std::visit(value, option.field);
}

json namespace_of(const Flags& flags, bool launch) {
  json values;
  for (const muster::Option& option : muster::all_options()) {
    if (option.ends_muster() || option.origin == muster::OptionOrigin::Muster) continue;
    if (!muster::is_known(option, launch)) continue;
    values[dest_of(option)] = value_of(flags, option);
  }
  values["training_script"] = flags.script;
  values["training_script_args"] = flags.script_arguments;
  return values;
}

json outcome_of(const json& request) {
  if (request.contains("cuda_visible_devices")) {
    const auto devices = request.at("cuda_visible_devices").get<std::string>();
    return muster::visible_gpus({.count = request.at("count").get<int>(),
                                 .uuids = request.at("uuids").get<std::vector<std::string>>(),
                                 .mig_uuids = {}},
                                &devices);
  }
  const auto words = request.at("argv").get<std::vector<std::string>>();
  const auto variables = request.at("env").get<std::map<std::string, std::string>>();
  const muster::Environment environment(variables.begin(), variables.end());
  const bool launch = request.at("launch").get<bool>();
  const auto parsed = muster::parse_command_line(
      {.words = words, .environment = environment, .launch_module = launch});
  json result{{"script_at", muster::script_position(words, launch)}};
  if (const auto* flags = std::get_if<Flags>(&parsed)) {
    result["outcome"] = "ok";
    result["values"] = namespace_of(*flags, launch);
  } else if (const auto* early = std::get_if<muster::EarlyExit>(&parsed)) {
    result["outcome"] = "exit";
    result["option"] = muster::option(early->what).long_name();
  } else {
    result["outcome"] = "error";
    result["message"] = std::get<muster::UsageError>(parsed).message;
  }
  return result;
}

int print_text(std::vector<std::string> words) {
  const muster::Environment nothing;
  const auto parsed = muster::parse_command_line({.words = words, .environment = nothing});
  const auto* early = std::get_if<muster::EarlyExit>(&parsed);
  if (early == nullptr) return 2;
  constexpr int kColumns = 80;
  std::cout << muster::early_exit_text(*early, muster::program_name("muster"), kColumns);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc > 1) return print_text({argv + 1, argv + argc});
  for (std::string line; std::getline(std::cin, line);)
    std::cout << outcome_of(json::parse(line)).dump() << '\n';
  return 0;
}
