#include "rendezvous/messages/native_welcome.h"

#include <cstdint>

#include "rendezvous/rounds/limits.h"

namespace muster::native {

void write(const NativeWelcome& welcome, nlohmann::ordered_json& out) {
  out["protocol_version"] = welcome.protocol_version;
  out["muster_version"] = welcome.muster_version;
  out["peer_address"] = welcome.peer_address;
  if (!welcome.peer_end.empty()) out["peer_end"] = welcome.peer_end;
  if (!welcome.own_end.empty()) out["own_end"] = welcome.own_end;
  if (welcome.lease) out["lease_ns"] = welcome.lease->count();
  if (welcome.resumes) out["resumes"] = true;
  if (welcome.outlives_nodes) out["outlives_nodes"] = true;
  if (!welcome.proof.empty()) out["proof"] = welcome.proof;
  if (welcome.takes_reports) out["takes_reports"] = true;
  if (!welcome.state_id.empty()) out["state_id"] = welcome.state_id;
  if (welcome.state_is_shared) out["state_is_shared"] = true;
}

void read(Fields& fields, NativeWelcome& welcome) {
  welcome.protocol_version = fields.number<int>("protocol_version");
  welcome.muster_version = fields.text("muster_version", kMaxVersionBytes);
  if (welcome.protocol_version != kNativeProtocolVersion) return;
  welcome.peer_address = fields.text("peer_address", kMaxAddressBytes);
  if (fields.has("peer_end")) welcome.peer_end = fields.text("peer_end", kMaxAddressBytes);
  if (fields.has("own_end")) welcome.own_end = fields.text("own_end", kMaxAddressBytes);
  if (fields.has("lease_ns")) welcome.lease = Duration(fields.number<std::int64_t>("lease_ns", 1));
  if (fields.has("resumes")) welcome.resumes = fields.boolean("resumes");
  if (fields.has("outlives_nodes")) welcome.outlives_nodes = fields.boolean("outlives_nodes");
  if (fields.has("proof")) welcome.proof = read_hex(fields, "proof");
  if (fields.has("takes_reports")) welcome.takes_reports = fields.boolean("takes_reports");
  if (fields.has("state_id")) welcome.state_id = fields.text("state_id", kMaxStateIdBytes);
  if (fields.has("state_is_shared")) welcome.state_is_shared = fields.boolean("state_is_shared");
}

}  // namespace muster::native
