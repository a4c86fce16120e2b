#include "rendezvous/http/page_assets.h"

namespace muster::http {
namespace {

// rendezvous/CMakeLists.txt creates these files.
constexpr std::string_view kHtml =
#include "rendezvous/http/index.html.inc"
    ;
constexpr std::string_view kCss =
#include "rendezvous/http/page.css.inc"
    ;
constexpr std::string_view kScript =
#include "rendezvous/http/page.js.inc"
    ;
constexpr std::string_view kOpenApi =
#include "rendezvous/http/openapi.json.inc"
    ;

}  // namespace

std::optional<Asset> find_asset(std::string_view path) {
  if (path == "/") return Asset{"text/html; charset=utf-8", kHtml};
  if (path == "/page.css") return Asset{"text/css; charset=utf-8", kCss};
  if (path == "/page.js") return Asset{"text/javascript; charset=utf-8", kScript};
  if (path == "/api/v1/openapi.json") return Asset{"application/json", kOpenApi};
  return std::nullopt;
}

}  // namespace muster::http
