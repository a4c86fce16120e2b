#include "rendezvous/state/etcd/etcd_json.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/json_integer.h"
#include "base/whole_number.h"

namespace muster {
namespace {

using EtcdJson = nlohmann::ordered_json;

// gRPC's codes (grpc/status.h).
constexpr std::int64_t kGrpcCancelled = 1;
constexpr std::int64_t kGrpcUnknown = 2;
constexpr std::int64_t kGrpcDeadlineExceeded = 4;
constexpr std::int64_t kGrpcResourceExhausted = 8;
constexpr std::int64_t kGrpcAborted = 10;
constexpr std::int64_t kGrpcInternal = 13;
constexpr std::int64_t kGrpcUnavailable = 14;
constexpr std::int64_t kGrpcUnauthenticated = 16;
constexpr std::size_t kMaxEtcdTokenBytes = 16'384;  // A signed one (JWT) has about 500.
constexpr const char* kNoSuchShape = "etcd's answer does not have the expected form";

std::string json_text(const EtcdJson& json) {
  return json.dump(-1, ' ', false, EtcdJson::error_handler_t::replace);
}

EtcdJson change_json(const EtcdChange& change) {
  const std::string key = base64_encode(change.key);
  if (change.kind == EtcdChange::Kind::Delete) return {{"request_delete_range", {{"key", key}}}};
  const std::string value = base64_encode(change.value);
  if (change.kind == EtcdChange::Kind::DeleteRange)
    return {{"request_delete_range", {{"key", key}, {"range_end", value}}}};
  EtcdJson put = {{"key", key}, {"value", value}};
  if (change.lease != 0) put["lease"] = std::to_string(change.lease);
  return {{"request_put", std::move(put)}};
}

EtcdJson changes_json(const std::vector<EtcdChange>& changes) {
  EtcdJson list = EtcdJson::array();
  for (const EtcdChange& change : changes)
    list.push_back(change_json(change));
  return list;
}

// --- reading -------------------------------------------------------------------------------------

EtcdJson parsed(std::string_view text) {
  return EtcdJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// Null if there is no such member: the gateway leaves out fields that are zero, false or empty.
const EtcdJson* member(const EtcdJson& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

/// 0 if the field is left out; empty if it is not a number.
std::optional<std::int64_t> number_in(const EtcdJson& json, const char* name) {
  const EtcdJson* found = member(json, name);
  if (found == nullptr) return 0;
  if (found->is_number_integer()) return integer_of<std::int64_t>(*found);
  if (!found->is_string()) return std::nullopt;
  return whole_number<std::int64_t>(found->get_ref<const std::string&>());
}

std::string text_in(const EtcdJson& json, const char* name) {
  const EtcdJson* found = member(json, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag_in(const EtcdJson& json, const char* name) {
  const EtcdJson* found = member(json, name);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

std::optional<std::string> bytes_in(const EtcdJson& json, const char* name) {
  auto bytes = base64_decode(text_in(json, name));
  if (!bytes) return std::nullopt;
  return *std::move(bytes);
}

std::optional<std::int64_t> revision_in(const EtcdJson& json) {
  const EtcdJson* header = member(json, "header");
  if (header == nullptr || !header->is_object()) return std::nullopt;
  return number_in(*header, "revision");
}

std::optional<EtcdKeyValue> key_value(const EtcdJson& json) {
  auto key = bytes_in(json, "key");
  auto value = bytes_in(json, "value");
  const auto created = number_in(json, "create_revision");
  const auto lease = number_in(json, "lease");
  if (!key || !value || !created || !lease) return std::nullopt;
  return EtcdKeyValue{*std::move(key), *std::move(value), *created, *lease};
}

EtcdJsonResult<EtcdLease> lease_of(const EtcdJson& json) {
  const auto id = number_in(json, "ID");
  const auto seconds = number_in(json, "TTL");
  if (!json.is_object() || !id || !seconds || *id == 0) return EtcdJsonError{kNoSuchShape};
  return EtcdLease{*id, *seconds};
}

std::optional<EtcdChange> change_of(const EtcdJson& json) {
  const EtcdJson* put = member(json, "request_put");
  const EtcdJson* removed = member(json, "request_delete_range");
  const EtcdJson* body = put != nullptr ? put : removed;
  if (body == nullptr) return std::nullopt;
  auto key = bytes_in(*body, "key");
  auto value = bytes_in(*body, put != nullptr ? "value" : "range_end");
  const auto lease = number_in(*body, "lease");
  if (!key || !value || !lease || key->empty()) return std::nullopt;
  EtcdChange change{.key = *std::move(key), .value = *std::move(value), .lease = *lease};
  if (put == nullptr)
    change.kind = change.value.empty() ? EtcdChange::Kind::Delete : EtcdChange::Kind::DeleteRange;
  return change;
}

}  // namespace

std::string encode_txn(const EtcdGuard& guard, const std::vector<EtcdChange>& changes) {
  const EtcdJson compare = {{"key", base64_encode(guard.key)},
                            {"target", "CREATE"},
                            {"result", "EQUAL"},
                            {"create_revision", std::to_string(guard.create_revision)}};
  EtcdJson txn;
  txn["compare"] = EtcdJson::array({compare});
  txn["success"] = changes_json(changes);
  return json_text(txn);
}

std::string encode_range(std::string_view key, std::string_view end, std::int64_t limit) {
  EtcdJson range = {{"key", base64_encode(key)}};
  if (!end.empty()) range["range_end"] = base64_encode(end);
  range["limit"] = std::to_string(limit);
  return json_text(range);
}

std::string encode_lease_grant(std::int64_t seconds) {
  const EtcdJson grant = {{"TTL", std::to_string(seconds)}};
  return json_text(grant);
}

std::string encode_lease_id(std::int64_t id) {
  const EtcdJson lease = {{"ID", std::to_string(id)}};
  return json_text(lease);
}

std::string encode_watch_deletion(std::string_view key, std::int64_t revision) {
  EtcdJson create = {{"key", base64_encode(key)}, {"start_revision", std::to_string(revision)}};
  create["filters"] = EtcdJson::array({"NOPUT"});
  EtcdJson watch;
  watch["create_request"] = std::move(create);
  return json_text(watch);
}

std::string encode_watch(std::string_view key, std::int64_t revision) {
  EtcdJson watch;
  watch["create_request"] = {{"key", base64_encode(key)},
                             {"start_revision", std::to_string(revision)}};
  return json_text(watch);
}

std::string encode_changes(const std::vector<EtcdChange>& changes) {
  return json_text(changes_json(changes));
}

EtcdJsonResult<EtcdTxn> decode_txn(std::string_view text) {
  const EtcdJson json = parsed(text);
  const auto revision = revision_in(json);
  if (!revision) return EtcdJsonError{kNoSuchShape};
  return EtcdTxn{flag_in(json, "succeeded"), *revision};
}

EtcdJsonResult<EtcdRange> decode_range(std::string_view text) {
  const EtcdJson json = parsed(text);
  const auto revision = revision_in(json);
  if (!revision) return EtcdJsonError{kNoSuchShape};
  EtcdRange range{.found = {}, .more = flag_in(json, "more"), .revision = *revision};
  const EtcdJson* list = member(json, "kvs");
  if (list == nullptr) return range;
  if (!list->is_array()) return EtcdJsonError{kNoSuchShape};
  for (const EtcdJson& one : *list) {
    auto found = key_value(one);
    if (!found) return EtcdJsonError{kNoSuchShape};
    range.found.push_back(*std::move(found));
  }
  return range;
}

EtcdJsonResult<EtcdLease> decode_lease_grant(std::string_view text) {
  return lease_of(parsed(text));
}

EtcdJsonResult<EtcdLease> decode_lease_kept(std::string_view text) {
  const EtcdJson json = parsed(text);
  const EtcdJson* result = member(json, "result");
  if (result == nullptr) return EtcdJsonError{kNoSuchShape};
  return lease_of(*result);
}

std::string encode_authenticate(const std::string& user, const std::string& password) {
  const EtcdJson request = {{"name", user}, {"password", password}};
  return json_text(request);
}

EtcdJsonResult<std::string> decode_authenticated(std::string_view text) {
  std::string token = text_in(parsed(text), "token");
  const auto is_header = [](char c) { return c > ' ' && c <= '~'; };
  if (token.empty() || token.size() > kMaxEtcdTokenBytes ||
      !std::all_of(token.begin(), token.end(), is_header))
    return EtcdJsonError{kNoSuchShape};
  return {boost::system::in_place_value, std::move(token)};
}

bool is_token_refused(const EtcdRefusal& refusal) {
  const std::string_view text = refusal.text;
  return refusal.code == kGrpcUnauthenticated ||
         text.find("invalid auth token") != std::string_view::npos ||
         text.find("revision of auth store is old") != std::string_view::npos;
}

bool may_pass(const EtcdRefusal& refusal) {
  switch (refusal.code) {
    case 0:  // Not an answer of etcd's.
    case kGrpcCancelled:
    case kGrpcUnknown:
    case kGrpcDeadlineExceeded:
    case kGrpcAborted:
    case kGrpcInternal:
    case kGrpcUnavailable:
      return true;
    case kGrpcResourceExhausted:  // Also "database space exceeded", which does not pass.
      return refusal.text.find("too many requests") != std::string::npos;
    default:
      return false;
  }
}

EtcdJsonResult<EtcdWatchNews> decode_watch(std::string_view line) {
  const EtcdJson json = parsed(line);
  const EtcdJson* error = member(json, "error");
  if (error != nullptr) {
    std::string why = text_in(*error, "message");
    return EtcdWatchNews{.cancelled = why.empty() ? "etcd does not say why" : std::move(why)};
  }
  const EtcdJson* result = member(json, "result");
  if (result == nullptr) return EtcdJsonError{kNoSuchShape};
  EtcdWatchNews news;
  const EtcdJson* events = member(*result, "events");
  news.has_events = events != nullptr && events->is_array() && !events->empty();
  if (flag_in(*result, "canceled")) {
    news.cancelled = text_in(*result, "cancel_reason");
    if (news.cancelled.empty()) news.cancelled = "etcd does not say why";
  }
  return news;
}

EtcdJsonResult<std::vector<EtcdChange>> decode_changes(std::string_view text) {
  const EtcdJson json = parsed(text);
  if (!json.is_array()) return EtcdJsonError{"it is no list of changes"};
  std::vector<EtcdChange> changes;
  for (const EtcdJson& one : json) {
    auto change = change_of(one);
    if (!change) return EtcdJsonError{"one of its elements is no change"};
    changes.push_back(*std::move(change));
  }
  return changes;
}

EtcdRefusal decode_etcd_refusal(std::string_view text) {
  const EtcdJson json = parsed(text);
  EtcdRefusal refusal{.code = number_in(json, "code").value_or(0),
                      .text = text_in(json, "message")};
  if (refusal.text.empty()) refusal.text = text_in(json, "error");
  return refusal;
}

}  // namespace muster
