// A request that Beast has parsed, and the reply to it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <boost/beast/http/field.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "rendezvous/http/http_route.h"

namespace muster::http {

using Request = boost::beast::http::request<boost::beast::http::string_body>;

inline constexpr const char* kJsonType = "application/json";

struct Reply {
  unsigned status = 200;
  std::string type;
  std::string body;
  std::vector<std::pair<boost::beast::http::field, std::string>> fields = {};
};

/// The error for a request that only the leading musterd can answer. `why`: "standing by: ...".
std::string objection_of_standby(const std::string& why);

/// The body is {"error": {"code", "message"}}.
Reply error_reply(const RouteError& error);

}  // namespace muster::http
