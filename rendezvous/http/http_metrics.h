// Writes the figures of a server in Prometheus' text format. docs/operating.md explains the names.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/rounds/run_view.h"
#include "rendezvous/store/store_traffic.h"

namespace muster::http {

/// The figures of the store server.
struct StoreFigures {
  std::size_t connections = 0;
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;
  StoreTraffic traffic = {};
  std::size_t waiting = 0;
  std::size_t keys = 0;
  std::size_t bytes = 0;
  std::size_t unread_bytes = 0;
  std::map<std::string_view, std::uint64_t> closed = {};  // By reason.
};

/// The figures of the HTTP server.
struct HttpFigures {
  std::size_t connections = 0;
  std::uint64_t refused = 0;
  std::map<unsigned, std::uint64_t> requests;  // By status.
};

struct AllFigures {
  RunsFigures runs;
  StoreFigures store;
  bool draining = false;  // The job of this host has ended: no node is let in any more.
};

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

/// `began_seconds`: when the process began, in seconds since 1970.
std::string metrics_text(const AllFigures& figures, const HttpFigures& http, double began_seconds);

}  // namespace muster::http
