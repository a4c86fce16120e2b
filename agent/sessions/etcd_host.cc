#include "agent/sessions/etcd_host.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/host_match.h"
#include "agent/sessions/call_within.h"
#include "agent/sessions/store_dialer.h"
#include "base/address_scope.h"
#include "base/net/name_lookup.h"
#include "base/system/clock.h"
#include "rendezvous/state/etcd/host_record.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr const char* kOwnHostAddress = "127.0.0.1";
constexpr Duration kHostDrainLimit = std::chrono::seconds(2);
constexpr Duration kHostCloseLimit = std::chrono::seconds(5);
constexpr Duration kPauseBetweenTerms = std::chrono::seconds(1);
constexpr const char* kNoHostYet = "nobody hosts it yet, and one of the agents is to be elected";

}  // namespace

EtcdHost::EtcdHost(asio::io_context& loop, Options options, Handlers handlers)
    : loop_(loop), options_(std::move(options)), handlers_(std::move(handlers)), pause_(loop) {}

EtcdHost::~EtcdHost() {
  *alive_ = false;
}

void EtcdHost::start() {
  if (options_.unusable.empty()) return begin_term();
  asio::post(loop_, [this, alive = alive_] {
    if (*alive) on_unusable(options_.unusable);
  });
}

HostLocation EtcdHost::location() const {
  if (is_here()) return {.endpoints = {{kOwnHostAddress, term_->store->port()}}};
  if (no_host_) return {.no_host = true, .why = kNoHostYet};
  if (host_)
    return {.endpoints = {{with_scope(host_->host, options_.scope), host_->port}},
            .may_be_old = !host_is_current_};
  return {.why = etcd_error_};
}

// --- terms ---------------------------------------------------------------------------------------

template <typename Work>
void EtcdHost::on_loop(const std::weak_ptr<Term>& term, Work work) {
  asio::post(loop_, [this, alive = alive_, term, work = std::move(work)] {
    if (!*alive) return;
    const auto of = term.lock();
    if (of && of == term_) work();
  });
}

EtcdStateHandlers EtcdHost::term_handlers(const TermPtr& term) {
  const std::weak_ptr<Term> of = term;
  EtcdStateHandlers handlers;
  handlers.on_standing_by = [this, of](const std::string& why) {
    on_loop(of, [this, why] { on_etcd_error(why); });
  };
  handlers.on_leading = [this, of] { on_loop(of, [this] { on_leading(); }); };
  handlers.on_lost = [this, of](const std::string& why) {
    on_loop(of, [this, why] { on_lost(why); });
  };
  handlers.on_unusable = [this, of](const std::string& why) {
    on_loop(of, [this, why] { on_unusable(why); });
  };
  handlers.on_leader = [this, of](const std::string& value) {
    on_loop(of, [this, value] { on_leader(value); });
  };
  handlers.on_refused = [this, of](const std::string& why) {
    on_loop(of, [this, why] {
      refusal_ = why;
      on_etcd_error(why);
    });
  };
  return handlers;
}

void EtcdHost::begin_term() {
  const auto term = std::make_shared<Term>();
  wants_terms_ = true;
  try {
    term->state = start_etcd_state(options_.state, term_handlers(term));
  } catch (const std::system_error& error) {
    const std::string why = std::string("cannot start the thread that asks etcd: ") + error.what();
    return asio::post(loop_, [this, alive = alive_, why] {  // start() calls no handler itself.
      if (*alive) begin_term_later(why);
    });
  }
  term_ = term;
}

void EtcdHost::begin_term_later(const std::string& why) {
  if (!wants_terms_) return;
  if (etcd_error_ != why) spdlog::warn("{}: muster tries again", why);
  on_etcd_error(why);
  end_term([] {});
  pause_.expires_after(kPauseBetweenTerms);
  pause_.async_wait([this, alive = alive_](boost::system::error_code cancelled) {
    if (!cancelled && *alive && wants_terms_) begin_term();
  });
}

/// The server stops first: from now on this term sends nothing to any node.
void EtcdHost::end_term(const std::function<void()>& ended) {
  const TermPtr term = std::exchange(term_, nullptr);
  if (!term) return ended();
  if (term->store) term->store->stop();
  ending_.push_back(term);
  term->state->close([this, alive = alive_, &loop = loop_, ended, of = term.get()] {
    asio::post(loop, [this, alive, ended, of] {
      if (!*alive) return;
      std::erase_if(ending_, [of](const TermPtr& one) { return one.get() == of; });
      ended();
    });
  });
}

// --- news from etcd ------------------------------------------------------------------------------

void EtcdHost::on_leader(const std::string& value) {
  refusal_.clear();
  const auto record = decode_host_record(value);
  no_host_ = !record || record->host.empty();
  if (!value.empty() && !record)
    return on_unusable("etcd's key " + options_.state.etcd.prefix +
                       "/leader was not written by a muster agent: give another etcd_prefix with "
                       "--rdzv-conf, or delete that key");
  if (!no_host_) host_ = RendezvousEndpoint{record->host, record->port};
  host_is_current_ = !no_host_;
  notify_change();
}

void EtcdHost::on_etcd_error(const std::string& why) {
  if (etcd_error_ != why) spdlog::debug("rendezvous_by_etcd trouble=\"{}\"", why);
  no_host_ = host_is_current_ = false;
  etcd_error_ = why;
  notify_change();
}

void EtcdHost::on_leading() {
  StoreServerOptions server = options_.server;
  const std::string run = server.runs ? server.runs->only_run : std::string();
  server.state = term_->state;
  const EtcdOwnAddress own = term_->state->own_address();
  address_ = node_address(options_.local_addr, own.member_host, own.address, own.is_loopback);
  if (is_loopback_address(address_)) {  // No node comes from another machine.
    server.addresses = {kOwnHostAddress};
    if (address_ != kOwnHostAddress) server.addresses.push_back(address_);
  }
  auto store = StoreThread::start(std::move(server));
  if (!store) return begin_term_later("cannot host the rendezvous: " + store.error().what());
  term_->store = std::move(*store);
  const std::uint16_t port = term_->store->port();
  spdlog::info("rendezvous_hosted at={} run={}", endpoint_text(address_, port), run);
  term_->state->announce(
      encode_host_record({.name = process_text(), .host = without_scope(address_), .port = port}));
  notify_change();
}

void EtcdHost::on_lost(const std::string& why) {
  if (is_here()) {
    spdlog::warn(
        "this agent does not host the rendezvous any more ({}): all nodes look for the next host, "
        "and their workers go on",
        why);
    // The other nodes look here, too, until etcd names another host.
    host_ = RendezvousEndpoint{address_, term_->store->port()};
  }
  no_host_ = host_is_current_ = false;
  end_term([] {});
  begin_term();
  notify_change();
}

void EtcdHost::on_unusable(const std::string& why) {
  no_host_ = false;  // This agent hears no news any more, so it cannot know.
  wants_terms_ = false;
  end_term([] {});
  if (const auto handler = std::exchange(handlers_, {}).on_unusable) handler(why);
}

// --- the end -------------------------------------------------------------------------------------

void EtcdHost::retire() {
  if (is_here()) return;
  wants_terms_ = false;
  end_term([] {});
}

void EtcdHost::close(const std::function<void()>& done) {
  handlers_ = {};
  wants_terms_ = false;
  call_within(loop_, kHostCloseLimit, done, [this](const std::function<void()>& finish) {
    if (!is_here()) return end_term(finish);
    term_->store->drain(now() + kHostDrainLimit, [this, alive = alive_, finish] {
      asio::post(loop_, [this, alive, finish] {
        if (*alive) end_term(finish);
      });
    });
  });
}

}  // namespace muster
