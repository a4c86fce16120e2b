// Resolves names to addresses outside the loop, with a time limit, and remembers the answers.
//
// Asio's resolver does one look-up after the other. If no server answers one look-up, all others
// wait, and so does the end of the program.
//
// The answers are remembered per io_context. A name server that is slow or away must not keep a
// node from a host that it has reached before: the remembered addresses are used meanwhile. A
// look-up goes on when its caller has given up, and the next caller gets its answer. So a look-up
// may take longer than any of its callers waits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "base/time.h"

namespace muster {

/// If a name server does not answer, the resolver asks the next one after 5 s.
inline constexpr Duration kMaxName = std::chrono::seconds(15);
/// Names whose look-ups may be under way at once in a process. A resolver that never returns keeps
/// its thread; with so many of them, further look-ups fail.
inline constexpr int kMaxLookUps = 16;
/// Names that are remembered.
inline constexpr std::size_t kMaxNames = 64;

enum class NameErrc {
  TimedOut = 1,  // No name server has answered in time.
};
const boost::system::error_category& name_category();
inline boost::system::error_code make_error_code(NameErrc code) {
  return {static_cast<int>(code), name_category()};
}

struct NameLookup {
  std::vector<std::string> addresses;  // Numeric, without duplicates, in the resolver's order.
  std::string canonical;               // The resolver's canonical name. Empty: unknown.
  boost::system::error_code error;     // Why there are no addresses.
  /// The addresses are those of an earlier look-up, because this one has failed or is not answered
  /// yet: why. The name may have other addresses by now.
  boost::system::error_code stale;
};

/// Resolves a name. The result for a numeric address is that address. Without an answer within
/// `limit` it fails with NameErrc::TimedOut. If earlier addresses are remembered, it waits
/// for a fraction of a second only, and returns them rather than fail.
boost::asio::awaitable<NameLookup> look_up(std::string name, Duration limit);
/// Does the same, but waits for `limit` also if earlier addresses are remembered: they have not
/// worked.
boost::asio::awaitable<NameLookup> look_up_anew(std::string name, Duration limit);
/// Begins a look-up whose answer will be remembered.
void begin_look_up(const boost::asio::any_io_executor& executor, const std::string& name);
/// Begins a look-up of each name, and waits until an address of one of them is known. Returns the
/// index of the first such name, or 0 if there is none within `limit`.
boost::asio::awaitable<std::size_t> first_known(std::vector<std::string> names, Duration limit);

/// The address in the form in which Asio prints it, an IPv4-mapped one as IPv4. Empty if `text` is
/// no address.
std::string normal_address(const std::string& text);
bool is_loopback_address(const std::string& text);

}  // namespace muster
