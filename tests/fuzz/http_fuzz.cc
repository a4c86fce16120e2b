// libFuzzer: the parts of HTTP that muster parses itself. In musterd: targets, Host, --http,
// Authorization and Cookie (Beast has already split the request). In musterctl: whole answers.

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

void read_answer(std::string_view text) {
  const std::size_t whole = ctl::answer_bytes(text);
  const auto answer = ctl::parse_answer(text);
  // A valid answer has a length, which does not depend on the bytes after it.
  if (!answer) return;
  if (whole == 0 || whole > text.size()) std::abort();
  const auto alone = ctl::parse_answer(text.substr(0, whole));
  if (!alone || alone->body != answer->body || alone->nonce != answer->nonce) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_request(text);
  read_answer(text);
  static_cast<void>(ctl::parse_endpoint(text));
  return 0;
}
