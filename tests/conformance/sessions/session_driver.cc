// Runs one session without an agent: prints events as JSON lines and reads commands.
//
//   session_driver c10d|static HOST PORT RUN_ID MIN MAX [key=value ...]
//   session_driver hosts NAME...      whether each name means this machine
//
// The keys nproc, role, local_addr, node_rank, identical and exit_barrier are for the driver, all
// other keys are those of --rdzv-conf. Commands, one a line: join, fail TEXT, finish, give_up TEXT,
// leave. The driver ends when its input ends.

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/sessions/c10d_session.h"
#include "agent/sessions/endpoint_check.h"
#include "agent/sessions/static_session.h"
#include "agent/sessions/store_thread.h"
#include "base/net/spawn_task.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using nlohmann::json;
using Conf = std::map<std::string, std::string>;

void say(const json& line) {
  std::cout << line.dump() << '\n' << std::flush;
}

std::string take(Conf& conf, const std::string& key, const std::string& otherwise) {
  const auto found = conf.find(key);
  if (found == conf.end()) return otherwise;
  std::string value = found->second;
  conf.erase(found);
  return value;
}

json facts_json(const SessionRound& round) {
  const RoundFacts& facts = round.facts;
  return {{"event", "round"},
          {"round", round.round},
          {"group_rank", facts.group_rank.value},
          {"group_world_size", facts.group_world_size},
          {"base_rank", facts.ranks.base_global_rank.value},
          {"world_size", facts.ranks.world_size},
          {"role_rank", facts.ranks.base_role_rank},
          {"role_world_size", facts.ranks.role_world_size},
          {"master_addr", facts.master_addr},
          {"master_port", facts.master_port},
          {"restart_count", facts.restart_count},
          {"job_decides", round.job_decides}};
}

class Driver {
 public:
  void run(int count, char** arguments);

 private:
  RendezvousSession::Handlers handlers();
  void host_store(const std::function<void(const HostedStoreResult&)>& done);
  void command(const std::string& line);
  static asio::awaitable<void> read_commands(Driver& self);

  AgentOptions options_;
  asio::io_context loop_{1};
  std::unique_ptr<StoreThread> store_;
  std::shared_ptr<RendezvousSession> session_;
};

void Driver::host_store(const std::function<void(const HostedStoreResult&)>& done) {
  say({{"event", "host_store"}, {"again", store_ != nullptr}});
  if (store_) {
    const std::uint16_t port = store_->port();
    return store_->reset([done, port] { done(HostedStore{port}); });
  }
  auto store = StoreThread::start({});
  if (!store) return done(store.error());
  store_ = std::move(*store);
  done(HostedStore{store_->port()});
}

RendezvousSession::Handlers Driver::handlers() {
  return {
      .on_round = [](const SessionRound& round) { say(facts_json(round)); },
      .on_restart =
          [](const SessionRestart& restart) {
            say({{"event", "restart"}, {"why", restart.why}});
          },
      .on_end =
          [](const SessionEnd& end) {
            say({{"event", "end"}, {"succeeded", end.succeeded}, {"why", end.why}});
          },
      .on_failed =
          [](const std::string& reason) {
            say({{"event", "failed"}, {"reason", reason}});
          },
      .host_store = [this](const auto& done) { host_store(done); },
  };
}

void Driver::command(const std::string& line) {
  const std::string word = line.substr(0, line.find(' '));
  const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
  if (word == "join") session_->join();
  if (word == "fail") session_->workers_failed({rest});
  if (word == "finish") session_->finished(true, rest);
  if (word == "give_up") session_->finished(false, rest);
  if (word == "leave") session_->leave();
}

asio::awaitable<void> Driver::read_commands(Driver& self) {
  asio::posix::stream_descriptor input(self.loop_, ::dup(STDIN_FILENO));
  std::string buffer;
  for (;;) {
    constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
    auto text = asio::dynamic_buffer(buffer);
    const auto [error, size] = co_await asio::async_read_until(input, text, '\n', kNoThrow);
    if (error) break;
    self.command(buffer.substr(0, size - 1));
    buffer.erase(0, size);
  }
  self.session_->close();
  self.loop_.stop();
}

void Driver::run(int count, char** arguments) {
  Conf conf;
  for (int i = 7; i < count; ++i) {
    const std::string pair = arguments[i];
    conf[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
  }
  const std::string kind = arguments[1];
  const std::string role = take(conf, "role", "default");
  const std::string local_addr = take(conf, "local_addr", "");
  const int nproc = std::stoi(take(conf, "nproc", "1"));
  const int node_rank = std::stoi(take(conf, "node_rank", "0"));
  const bool identical = take(conf, "identical", "0") == "1";
  const auto barrier = std::chrono::seconds(std::stoi(take(conf, "exit_barrier", "300")));
  const auto port = static_cast<std::uint16_t>(std::stoi(arguments[3]));
  SettingsRequest request{.run_id = arguments[4],
                          .min_nodes = std::stoi(arguments[5]),
                          .max_nodes = std::stoi(arguments[6])};
  const auto settings = make_settings(request, conf);
  if (!settings) return say({{"event", "refused"}, {"reason", settings.error().reason}});
  options_ = {.max_nodes = request.max_nodes,
              .local_world_size = nproc,
              .run_id = request.run_id,
              .role = role,
              .rendezvous = {.host = arguments[2],
                             .port = port,
                             .settings = *settings,
                             .node_rank = node_rank,
                             .local_addr = local_addr,
                             .worker_identical = identical}};
  const auto make = kind == "c10d" ? make_c10d_session : make_static_session;
  session_ = make(loop_.get_executor(), options_, handlers(), barrier);
  session_->join();
  spawn_task(loop_.get_executor(), "commands", read_commands(*this));
  const auto work = asio::make_work_guard(loop_);
  loop_.run();
}

asio::awaitable<void> tell_hosts(std::vector<std::string> names) {
  for (const std::string& name : names) {
    EndpointChecker checker(name);
    const EndpointCheck answer =
        co_await checker.check(std::chrono::seconds(10), std::chrono::seconds(10));
    const char* match = answer.match == HostMatch::Here          ? "here"
                        : answer.match == HostMatch::OnInterface ? "on_interface"
                                                                 : "elsewhere";
    say({{"name", name}, {"match", match}, {"trouble", answer.lookup_error}});
  }
}

}  // namespace
}  // namespace muster

int main(int count, char** arguments) {
  if (count > 2 && std::string(arguments[1]) == "hosts") {
    boost::asio::io_context loop{1};
    const std::vector<std::string> names(arguments + 2, arguments + count);
    muster::spawn_task(loop.get_executor(), "hosts", muster::tell_hosts(names));
    loop.run();
    return 0;
  }
  if (count < 7) {
    std::cerr << "session_driver c10d|static HOST PORT RUN_ID MIN MAX [key=value ...]\n";
    return 2;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("driver"));
  muster::Driver driver;
  driver.run(count, arguments);
  return 0;
}
