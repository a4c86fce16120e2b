#include "rendezvous/state/etcd/host_record.h"

#include "base/bounded_json.h"
#include "base/json_fields.h"
#include "base/printable_text.h"

namespace muster {
namespace {

constexpr std::size_t kMaxHostBytes = 256;
constexpr JsonLimits kHostLimits{.values = 100, .depth = 16};  // Of fields of a later muster.

}  // namespace

template <typename V>
void fields(V& v, Of<V, HostRecord>& record) {
  v.text("name", record.name, kMaxHostRecordBytes);
  if (!v.has("host", !record.host.empty())) return;
  v.text("host", record.host, kMaxHostBytes);
  v.check(!record.host.empty(), "host", "it is empty");
  v.number("port", record.port, 1);
}

std::string encode_host_record(const HostRecord& record) {
  return fields_text(record);
}

std::optional<HostRecord> decode_host_record(std::string_view text) {
  JsonReader::Json json;
  if (text.size() > kMaxHostRecordBytes || parse_bounded_json(text, kHostLimits, json))
    return std::nullopt;
  HostRecord record;
  if (!json.is_object() || read_fields(json, record)) return std::nullopt;
  record.name = printable_text(record.name);
  return record;
}

}  // namespace muster
