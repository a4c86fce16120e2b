#include "rendezvous/http/page_assets.h"

#include <utility>

namespace muster::http {
namespace {

// rendezvous/CMakeLists.txt creates these files.
constexpr std::string_view kHtml =
#include "rendezvous/http/index.html.inc"
    ;
constexpr std::string_view kCss =
#include "rendezvous/http/page.css.inc"
    ;
constexpr std::string_view kIcon =
#include "rendezvous/http/favicon.svg.inc"
    ;
constexpr std::string_view kWords =
#include "rendezvous/http/words.js.inc"
    ;
constexpr std::string_view kDom =
#include "rendezvous/http/dom.js.inc"
    ;
constexpr std::string_view kHub =
#include "rendezvous/http/hub.js.inc"
    ;
constexpr std::string_view kPlot =
#include "rendezvous/http/plot.js.inc"
    ;
constexpr std::string_view kNodes =
#include "rendezvous/http/nodes.js.inc"
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
  if (path == "/favicon.svg") return Asset{"image/svg+xml", kIcon};
  constexpr std::pair<std::string_view, std::string_view> kScripts[] = {
      {"/words.js", kWords}, {"/dom.js", kDom},     {"/hub.js", kHub},
      {"/plot.js", kPlot},   {"/nodes.js", kNodes}, {"/page.js", kScript},
  };
  for (const auto& [name, content] : kScripts)
    if (path == name) return Asset{"text/javascript; charset=utf-8", content};
  if (path == "/api/v1/openapi.json") return Asset{"application/json", kOpenApi};
  return std::nullopt;
}

}  // namespace muster::http
