// The welcome of the native door: fields to JSON and back.
#pragma once

#include "rendezvous/messages/native_codec.h"
#include "rendezvous/messages/native_json.h"

namespace muster::native {

void write(const NativeWelcome& welcome, nlohmann::ordered_json& out);
/// Of a welcome in another protocol version, only the two versions are read.
void read(Fields& fields, NativeWelcome& welcome);

}  // namespace muster::native
