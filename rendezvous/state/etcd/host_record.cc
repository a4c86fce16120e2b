#include "rendezvous/state/etcd/host_record.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable_text.h"

namespace muster {
namespace {

using HostJson = nlohmann::ordered_json;

constexpr std::size_t kMaxHostBytes = 256;

}  // namespace

std::string encode_host_record(const HostRecord& record) {
  HostJson json = {{"name", record.name}};
  if (!record.host.empty()) {
    json["host"] = record.host;
    json["port"] = record.port;
  }
  return json.dump(-1, ' ', false, HostJson::error_handler_t::replace);
}

std::optional<HostRecord> decode_host_record(std::string_view text) {
  if (text.size() > kMaxHostRecordBytes) return std::nullopt;
  const HostJson json = HostJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  HostRecord record{.name = printable_text(name->get<std::string>())};
  const auto host = json.find("host");
  const auto port = json.find("port");
  if (host == json.end()) return record;
  if (!host->is_string() || port == json.end() || !port->is_number_unsigned()) return std::nullopt;
  const auto number = port->get<std::uint64_t>();
  record.host = host->get<std::string>();
  if (record.host.empty() || record.host.size() > kMaxHostBytes || number == 0 || number > 65535)
    return std::nullopt;
  record.port = static_cast<std::uint16_t>(number);
  return record;
}

}  // namespace muster
