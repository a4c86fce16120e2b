#include "rendezvous/http/http_reply.h"

#include <nlohmann/json.hpp>

namespace muster::http {

std::string objection_of_standby(const std::string& why) {
  return "this musterd is " + why + ". Ask the one that leads";
}

Reply error_reply(const RouteError& error) {
  const nlohmann::json body{{"error", {{"code", error.code}, {"message", error.message}}}};
  return {error.status, kJsonType,
          body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

}  // namespace muster::http
