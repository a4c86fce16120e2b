#include "launcher/hosts/node_message.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/json_integer.h"
#include "base/whole_number.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::string_view kGreeting = "muster-node ";
constexpr std::string_view kSignal = "signal ";
constexpr int kMaxSilenceSeconds = 86400;
constexpr JsonLimits kLimits{.values = std::size_t{1} << 17, .depth = 3};

FlagError strange(const std::string& what) {
  return {"the job that came over ssh is not understood: " + what};
}

bool has_zero(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

}  // namespace

std::string greeting(std::string_view version) {
  return std::string(kGreeting).append(version).append("\n");
}

std::optional<std::string> version_of_greeting(std::string_view line) {
  if (!line.starts_with(kGreeting)) return std::nullopt;
  line.remove_prefix(kGreeting.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return std::string(line);
}

std::string encode_node_job(const NodeJob& job) {
  // Bytes that are no UTF-8 may be in a path or a variable: as Latin-1 they survive the way.
  const auto as_text = [](std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        text += c;
      } else {
        text += static_cast<char>(0xc0 | (byte >> 6));
        text += static_cast<char>(0x80 | (byte & 0x3f));
      }
    }
    return text;
  };
  json arguments = json::array();
  for (const std::string& word : job.arguments)
    arguments.push_back(as_text(word));
  json environment = json::object();
  for (const auto& [name, value] : job.environment)
    environment[as_text(name)] = as_text(value);
  const json message{{"folder", as_text(job.folder)},
                     {"environment", std::move(environment)},
                     {"arguments", std::move(arguments)},
                     {"max_silence_s", job.max_silence_s}};
  return message.dump() + "\n";
}

std::string encode_node_signal(int number) {
  return std::string(kSignal) + std::to_string(number) + "\n";
}

Checked<NodeJob> decode_node_job(std::string_view line) {
  json message;
  if (line.size() > kMaxNodeJobBytes || parse_bounded_json(line, kLimits, message) ||
      !message.is_object())
    return strange("it is no JSON object");
  bool is_well_formed = true;
  const auto bytes_of = [&](const std::string& text) {
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte < 0x80) {
        bytes += text[i];
      } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size()) {
        bytes += static_cast<char>((byte << 6) | (text[++i] & 0x3f));
      } else {
        is_well_formed = false;
      }
    }
    is_well_formed = is_well_formed && !has_zero(bytes);
    return bytes;
  };
  NodeJob job;
  const auto folder = message.find("folder");
  const auto environment = message.find("environment");
  const auto arguments = message.find("arguments");
  if (folder == message.end() || !folder->is_string()) return strange("it has no folder");
  if (environment == message.end() || !environment->is_object())
    return strange("it has no environment");
  if (arguments == message.end() || !arguments->is_array()) return strange("it has no arguments");
  job.folder = bytes_of(folder->get_ref<const std::string&>());
  for (const auto& [name, value] : environment->items()) {
    if (!value.is_string() || name.empty() || name.find('=') != std::string::npos)
      return strange("its environment is not one of texts");
    std::string shown = bytes_of(name);
    job.environment.emplace(std::move(shown), bytes_of(value.get_ref<const std::string&>()));
  }
  for (const json& word : *arguments) {
    if (!word.is_string()) return strange("its arguments are no texts");
    job.arguments.push_back(bytes_of(word.get_ref<const std::string&>()));
  }
  if (!is_well_formed) return strange("a text in it is not one of bytes");
  const auto silence = message.find("max_silence_s");
  const auto seconds = silence == message.end()
                           ? std::nullopt
                           : integer_within<int>(*silence, 1, kMaxSilenceSeconds);
  if (!seconds) return strange("it has no limit of silence");
  job.max_silence_s = *seconds;
  return job;
}

std::optional<int> decode_node_signal(std::string_view line) {
  if (!line.starts_with(kSignal)) return std::nullopt;
  const auto number = whole_number<int>(line.substr(kSignal.size()));
  if (number && (*number < 1 || *number > 64)) return std::nullopt;
  return number;
}

}  // namespace muster
