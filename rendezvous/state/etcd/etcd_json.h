// Requests to etcd's JSON gateway and its answers: JSON text <-> plain values.
//
// Keys and values are bytes, which the gateway encodes as base64; 64-bit numbers are texts. Fields
// that later versions of etcd add to an answer are ignored. docs/decisions/0017-etcd-client.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

namespace muster {

/// One change of a transaction.
struct EtcdChange {
  enum class Kind { Put, Delete, DeleteRange };
  Kind kind = Kind::Put;
  std::string key;
  std::string value;       // Put: the value. DeleteRange: the end of the range, which stays.
  std::int64_t lease = 0;  // Put: etcd deletes the key with this lease; 0: the key has no lease.
  bool operator==(const EtcdChange&) const = default;
};

struct EtcdKeyValue {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t lease = 0;
};

struct EtcdRange {
  std::vector<EtcdKeyValue> found;
  bool more = false;          // The limit was reached: there are more keys.
  std::int64_t revision = 0;  // The revision of the whole store at the time of the read.
};

struct EtcdTxn {
  bool succeeded = false;
  std::int64_t revision = 0;
};

struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t seconds = 0;  // The time that etcd grants. 0: the lease is over.
};

/// One message of a watch.
struct EtcdWatchNews {
  bool has_events = false;
  std::string cancelled;  // Why the watch has ended. Empty: the watch goes on.
};

struct EtcdRefusal {
  std::int64_t code = 0;  // The gRPC code.
  std::string text;
};

struct EtcdJsonError {
  std::string reason;  // The error in the answer.
};
template <typename T>
using EtcdJsonResult = boost::system::result<T, EtcdJsonError>;

/// The condition of a transaction: `key` was created at `create_revision`; 0: it does not exist. If
/// the condition does not hold, the transaction changes nothing.
struct EtcdGuard {
  std::string key;
  std::int64_t create_revision = 0;
};
std::string encode_txn(const EtcdGuard& guard, const std::vector<EtcdChange>& changes);
/// Reads the keys from `key` up to `end`, without `end`; if `end` is empty, only `key`.
std::string encode_range(std::string_view key, std::string_view end, std::int64_t limit);
std::string encode_lease_grant(std::int64_t seconds);
/// The request of keep-alive and revoke.
std::string encode_lease_id(std::int64_t id);
/// The answer has a token, which every later request must contain.
std::string encode_authenticate(const std::string& user, const std::string& password);
/// Watches deletions of `key` from `revision` on.
std::string encode_watch_deletion(std::string_view key, std::int64_t revision);
/// Watches changes of `key`, including deletions, from `revision` on.
std::string encode_watch(std::string_view key, std::int64_t revision);
/// Only the changes, for a journal.
std::string encode_changes(const std::vector<EtcdChange>& changes);

EtcdJsonResult<EtcdTxn> decode_txn(std::string_view text);
EtcdJsonResult<EtcdRange> decode_range(std::string_view text);
EtcdJsonResult<EtcdLease> decode_lease_grant(std::string_view text);
EtcdJsonResult<EtcdLease> decode_lease_kept(std::string_view text);
EtcdJsonResult<std::string> decode_authenticated(std::string_view text);
EtcdJsonResult<EtcdWatchNews> decode_watch(std::string_view line);
EtcdJsonResult<std::vector<EtcdChange>> decode_changes(std::string_view text);
/// Whether this refusal means that etcd does not know the token of the request.
bool is_token_refused(const EtcdRefusal& refusal);
/// Whether another member may accept the request, or this member later.
bool may_pass(const EtcdRefusal& refusal);
/// Decodes an answer whose HTTP status is not 200. Text that is not JSON of etcd has the code 0.
EtcdRefusal decode_etcd_refusal(std::string_view text);

}  // namespace muster
