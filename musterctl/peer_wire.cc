#include "musterctl/peer_wire.h"

#include <boost/endian/conversion.hpp>

namespace muster::ctl {
namespace {

using boost::endian::load_big_s64;
using boost::endian::load_big_u32;

const unsigned char* unsigned_bytes(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void append_number(std::string& text, std::int64_t number) {
  unsigned char bytes[8];
  boost::endian::store_big_s64(bytes, number);
  text.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

void append_rank(std::string& text, int rank) {
  unsigned char bytes[4];
  boost::endian::store_big_u32(bytes, static_cast<std::uint32_t>(rank));
  text.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

// Takes equally long for each wrong secret.
bool same_secret(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    different |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return different == 0;
}

}  // namespace

std::string probe_greeting(std::string_view secret, int rank) {
  std::string text(kProbeMagic);
  text += secret;
  append_rank(text, rank);
  return text;
}

std::optional<int> read_greeting(std::string_view bytes, std::string_view secret) {
  if (bytes.size() != kGreetingBytes || !bytes.starts_with(kProbeMagic)) return std::nullopt;
  if (!same_secret(bytes.substr(kProbeMagic.size(), kSecretDigits), secret)) return std::nullopt;
  const std::uint32_t rank = load_big_u32(unsigned_bytes(bytes) + bytes.size() - 4);
  if (rank > 0x7FFFFFFF) return std::nullopt;
  return static_cast<int>(rank);
}

std::string probe_welcome(int rank) {
  std::string text(kProbeMagic);
  append_rank(text, rank);
  return text;
}

bool is_welcome_of(std::string_view bytes, int rank) {
  return bytes == probe_welcome(rank);
}

std::string probe_pong(WallNanoseconds received, WallNanoseconds sent) {
  std::string text(1, kPing);
  append_number(text, received);
  append_number(text, sent);
  return text;
}

bool read_pong(std::string_view bytes, PingTimes& times) {
  if (bytes.size() != kPongBytes || bytes.front() != kPing) return false;
  times.received = load_big_s64(unsigned_bytes(bytes) + 1);
  times.answered = load_big_s64(unsigned_bytes(bytes) + 9);
  return true;
}

// Computes with seconds as double: the difference of two numbers from outside may not fit an
// integer.
double ahead_seconds(const PingTimes& times) {
  const auto seconds = [](WallNanoseconds time) { return static_cast<double>(time) / 1e9; };
  const double there = seconds(times.received) - seconds(times.sent);
  const double back = seconds(times.answered) - seconds(times.back);
  return (there + back) / 2;
}

}  // namespace muster::ctl
