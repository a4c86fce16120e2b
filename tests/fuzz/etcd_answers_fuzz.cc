// libFuzzer: the answers of etcd, and the values that are stored there: the journal, the records of
// runs, and the address of a host.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/printable_text.h"
#include "rendezvous/state/etcd/etcd_json.h"
#include "rendezvous/state/etcd/etcd_records.h"
#include "rendezvous/state/etcd/host_record.h"

namespace {

using namespace muster;

/// An answer that cannot be read has a reason, which is one line.
template <typename Answer>
void check_reason(const Answer& answer) {
  if (answer) return;
  if (answer.error().reason.empty()) std::abort();
}

void check_records(std::string_view text) {
  const auto range = decode_range(text);
  check_reason(range);
  if (!range) return;
  EtcdRecords records("/muster", 100);
  records.begin_reading();
  for (const EtcdKeyValue& entry : range->found)
    check_reason(records.read(entry));
  (void)records.finish_reading();
}

void check_journal(std::string_view text) {
  const auto changes = decode_changes(text);
  check_reason(changes);
  if (!changes) return;
  const auto again = decode_changes(encode_changes(*changes));
  if (!again || *again != *changes) std::abort();
}

void check_host(std::string_view text) {
  const auto host = decode_host_record(text);
  if (!host) return;
  if (text.size() > kMaxHostRecordBytes) std::abort();
  // Reading makes a name printable: it escapes backslashes, and a second reading escapes them
  // again.
  HostRecord expected = *host;
  expected.name = printable_text(host->name);
  const std::string written = encode_host_record(*host);
  if (written.size() <= kMaxHostRecordBytes && decode_host_record(written) != expected)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_reason(decode_txn(text));
  check_reason(decode_lease_grant(text));
  check_reason(decode_lease_kept(text));
  check_reason(decode_authenticated(text));
  check_reason(decode_watch(text));
  static_cast<void>(is_token_refused(decode_etcd_refusal(text)));
  check_records(text);
  check_journal(text);
  check_host(text);
  return 0;
}
