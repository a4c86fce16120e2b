// The page for browsers: the files of rendezvous/http/page, compiled into the program.
#pragma once

#include <optional>
#include <string_view>

#include "rendezvous/http/http_route.h"

namespace muster::http {

/// Finds "/", "/page.css", "/page.js" or "/api/v1/openapi.json". Returns std::nullopt for any other
/// path.
std::optional<Asset> find_asset(std::string_view path);

}  // namespace muster::http
