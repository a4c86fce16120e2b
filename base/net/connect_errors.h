// What several failed tries to connect say together about a server.
//
// The one rule for the addresses of a name and for several endpoints. "Connection refused" says
// that no process listens, and nodes train on as long as that is so. So it may be said only if each
// place says it: behind a place that cannot be reached the server may run, and another round may
// form there.
#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>

namespace muster {

class ConnectErrors {
 public:
  /// `address`: the place, if it is one address. An address of a family that this machine does not
  /// have at all is left out, unless it is the only one: many names have IPv6 addresses that half
  /// of their users cannot reach.
  void add(const boost::system::error_code& error, const boost::asio::ip::address& address);
  /// A place of its own, such as an endpoint: its error is already the result of such a rule.
  void add(const boost::system::error_code& error);
  /// The error that says most about why there is no server. "Refused" only if every place says so.
  const boost::system::error_code& result() const { return result_; }

 private:
  boost::system::error_code result_;
  int priority_ = -1;  // Of `result_`. Below 0: nothing was added yet.
};

/// Whether a try to connect has ended before a packet left: without an address, or without a way.
/// Then nothing is known of the server.
bool never_got_there(const boost::system::error_code& error);

/// Whether this machine has, or had at an earlier call, an address of the family by which it can
/// reach other machines. An address may go away with its link: that does not make the machine one
/// without the family.
bool machine_has_family(bool v6);

}  // namespace muster
