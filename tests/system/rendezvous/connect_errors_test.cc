#include "base/net/connect_errors.h"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include "base/net/name_lookup.h"
#include "rendezvous/client/store_client.h"

namespace muster {
namespace {

using boost::system::error_code;
namespace errc = boost::system::errc;

const error_code kRefused = make_error_code(errc::connection_refused);
const error_code kUnreachable = make_error_code(errc::network_unreachable);
const error_code kNoAddress = make_error_code(errc::address_not_available);
const error_code kTimedOut = make_error_code(errc::timed_out);
const boost::asio::ip::address kHere = boost::asio::ip::make_address("127.0.0.3");
const boost::asio::ip::address kHereToo = boost::asio::ip::make_address("::1");

TEST_CASE("connect errors: refused only if every address refuses", "[unit][rendezvous]") {
  const auto together = [](const error_code& one, const error_code& other) {
    ConnectErrors errors;
    errors.add(one, kHere);
    errors.add(other, kHereToo);
    return errors.result();
  };
  CHECK(together(kRefused, kRefused) == kRefused);
  for (const error_code& other : {kUnreachable, kNoAddress, kTimedOut}) {
    CHECK(together(kRefused, other) == other);
    CHECK(together(other, kRefused) == other);
  }
  CHECK(together(kUnreachable, kTimedOut) == kTimedOut);
  CHECK(together(kTimedOut, kUnreachable) == kTimedOut);
}

TEST_CASE("connect errors: a try that never got there says nothing of the server",
          "[unit][rendezvous]") {
  for (const error_code& error :
       {kUnreachable, kNoAddress, make_error_code(NameErrc::TimedOut),
        error_code(boost::asio::error::host_not_found), error_code(boost::asio::error::no_data),
        error_code(boost::asio::error::host_not_found_try_again)})
    CHECK(never_got_there(error));
  for (const error_code& error : {kRefused, kTimedOut, make_error_code(StoreErrc::ConnectTimedOut),
                                  make_error_code(errc::connection_reset)})
    CHECK_FALSE(never_got_there(error));
}

TEST_CASE("connect errors: several endpoints follow the same rule", "[unit][rendezvous]") {
  for (const error_code& other : {kUnreachable, kTimedOut}) {
    ConnectErrors errors;
    errors.add(kRefused);
    errors.add(other);
    errors.add(kRefused);
    CHECK(errors.result() == other);
  }
  ConnectErrors none;
  CHECK_FALSE(none.result());
}

TEST_CASE("connect errors: a family that this machine does not have is left out",
          "[unit][rendezvous]") {
  ConnectErrors errors;
  errors.add(kRefused, kHere);
  errors.add(kUnreachable, boost::asio::ip::make_address("2001:db8::1"));
  CHECK(errors.result() == (machine_has_family(true) ? kUnreachable : kRefused));
}

}  // namespace
}  // namespace muster
