// Requests to etcd's JSON gateway and its answers: JSON text <-> plain values.
//
// Keys and values are bytes, which the gateway carries as base64; 64-bit numbers are texts. What
// etcd adds to an answer in a later version is not read. docs/decisions/0017-etcd-client.md.
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
  std::string value;       // Put: what to store. DeleteRange: the first key that stays.
  std::int64_t lease = 0;  // Put: the key goes with this lease; 0: it stays.
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
  bool more = false;          // The limit was reached.
  std::int64_t revision = 0;  // Of the whole store, when it was read.
};

struct EtcdTxn {
  bool succeeded = false;
  std::int64_t revision = 0;
};

struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t seconds = 0;  // What etcd grants. 0: the lease is over.
};

/// One message of a watch.
struct EtcdWatchNews {
  bool has_events = false;
  std::string cancelled;  // Why the watch has ended. Empty: it goes on.
};

struct EtcdRefusal {
  std::int64_t code = 0;  // gRPC's.
  std::string text;
};

struct EtcdJsonError {
  std::string reason;  // What is wrong with the answer.
};
template <typename T>
using EtcdJsonResult = boost::system::result<T, EtcdJsonError>;

/// All changes, if `guard` was created at `create_revision`, where 0 means that it does not exist.
/// Otherwise nothing is changed.
struct EtcdGuard {
  std::string key;
  std::int64_t create_revision = 0;
};
std::string encode_txn(const EtcdGuard& guard, const std::vector<EtcdChange>& changes);
/// The keys from `key` up to `end`, which is not among them; an empty `end`: `key` alone.
std::string encode_range(std::string_view key, std::string_view end, std::int64_t limit);
std::string encode_lease_grant(std::int64_t seconds);
/// For keep-alive and revoke.
std::string encode_lease_id(std::int64_t id);
/// The answer is a token, which goes with every later request.
std::string encode_authenticate(const std::string& user, const std::string& password);
/// Deletions of `key` from `revision` on.
std::string encode_watch_deletion(std::string_view key, std::int64_t revision);
/// Changes of `key`, deletions included, from `revision` on.
std::string encode_watch(std::string_view key, std::int64_t revision);
/// The changes themselves, for a journal.
std::string encode_changes(const std::vector<EtcdChange>& changes);

EtcdJsonResult<EtcdTxn> decode_txn(std::string_view text);
EtcdJsonResult<EtcdRange> decode_range(std::string_view text);
EtcdJsonResult<EtcdLease> decode_lease_grant(std::string_view text);
EtcdJsonResult<EtcdLease> decode_lease_kept(std::string_view text);
EtcdJsonResult<std::string> decode_authenticated(std::string_view text);
EtcdJsonResult<EtcdWatchNews> decode_watch(std::string_view line);
EtcdJsonResult<std::vector<EtcdChange>> decode_changes(std::string_view text);
/// Whether etcd does not know the token that came with a request, by what it says of that.
bool is_token_refused(const EtcdRefusal& refusal);
/// Of an answer that is not 200. What is no JSON of etcd has code 0.
EtcdRefusal decode_etcd_refusal(std::string_view text);

}  // namespace muster
