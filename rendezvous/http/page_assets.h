// The page for browsers: the files of rendezvous/http/page, compiled in.
#pragma once

#include <optional>
#include <string_view>

#include "rendezvous/http/http_route.h"

namespace muster::http {

/// "/", "/page.css" or "/page.js"; nothing if there is no such part.
std::optional<Asset> find_asset(std::string_view path);

}  // namespace muster::http
