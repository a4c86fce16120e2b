// Warns of workers that try to connect to an address that does not answer: a MASTER_ADDR that the
// script has set, or a firewall.
#pragma once

#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/connecting_sockets.h"
#include "agent/core/worker_table.h"

namespace muster {

class ConnectionWatch : public WorkerObserver {
 public:
  ConnectionWatch(boost::asio::io_context& io, WorkerTable& workers);
  ~ConnectionWatch() override;
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  void attempt_begins() override;
  void worker_started(const RunningWorker& worker) override;
  void attempt_ends() override;

 private:
  void arm();
  boost::asio::awaitable<void> look(std::shared_ptr<bool> alive);

  boost::asio::io_context& io_;
  const WorkerTable& workers_;
  boost::asio::steady_timer timer_;
  UnansweredDetector detector_;
  bool is_watching_ = false;  // From the first start of an attempt until its workers are stopped.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster
