// Between a checkpoint's bytes and its values. Private.
#pragma once

#include <ATen/core/ivalue.h>

#include <filesystem>
#include <vector>

namespace muster {

/// Throws Error with the path and the system's reason.
std::vector<char> read_bytes(const std::filesystem::path& path);
/// `path` is for the Error that it throws if the bytes are torn or foreign.
c10::IValue parse_bytes(const std::vector<char>& bytes, const std::filesystem::path& path);
/// A copy of the containers, with every tensor on `device`.
c10::IValue moved(const c10::IValue& value, c10::Device device);

/// "text" -> value; Error with `where` if `value` is no dict or has no such entry.
c10::IValue entry_of(const c10::IValue& value, const std::string& key, const std::string& where);

}  // namespace muster
