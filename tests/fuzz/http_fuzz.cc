// libFuzzer: the parts of HTTP that muster parses itself. In musterd: targets, Host, --http,
// Authorization and Cookie. In musterctl: endpoints and challenges. Beast parses all else.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "musterctl/http_text.h"
#include "rendezvous/http/http_access.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/http/page_assets.h"
#include "tests/support/plain_crypto.h"

namespace muster::http {

// CMake generates the files of the page; here no path has a file.
std::optional<Asset> find_asset(std::string_view) {
  return std::nullopt;
}

}  // namespace muster::http

namespace {

using namespace muster;

void read_request(std::string_view text) {
  for (const char* method : {"GET", "POST"}) {
    const auto route = http::find_route({method, text});
    if (!route && (route.error().status < 400 || route.error().message.empty())) std::abort();
  }
  http::names_loopback(text);
  if (const auto address = http::parse_address(text)) http::is_loopback(*address);
  http::HttpAccess access(std::make_shared<muster::testing::PlainCrypto>("secret"));
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view rest = text.substr(line.size());
  access.may_read({.authorization = line, .cookie = rest}, {});
  access.proves({.method = "POST", .target = rest, .nonce = "0"}, line);
  if (access.finish_login(text, {})) std::abort();  // No login link was made.
}

void read_challenge(std::string_view text) {
  const std::string nonce = ctl::nonce_of(text);
  if (nonce.find_first_not_of("0123456789abcdef") != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_request(text);
  read_challenge(text);
  static_cast<void>(ctl::parse_endpoint(text));
  return 0;
}
