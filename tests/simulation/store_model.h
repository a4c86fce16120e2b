// A second store, as plain as possible, with which the simulation compares the real one.
//
// Written from the protocol's description only. Every write searches all waits, and answers are
// built as strings. Nothing is fast, and nothing is shared with the real table.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/store/store_request.h"

namespace muster::testing {

class StoreModel {
 public:
  /// The bytes sent to each client so far.
  std::map<std::uint32_t, std::string> sent;
  /// The clients whose connection is closed, by the server or by themselves.
  std::map<std::uint32_t, bool> closed;

  void apply(std::uint32_t who, const Request& request) {
    const std::string key(request.key);
    const std::string value(request.value);
    switch (request.query) {
      case Query::Validate:
        break;
      case Query::Set:
        write(key, value);
        break;
      case Query::Append:
        write(key, values_[key] + value);
        break;
      case Query::Get:
        put_text(who, values_.count(key) ? values_[key] : "");
        break;
      case Query::Ping:
        put_number(who, request.number, 4);
        break;
      case Query::GetNumKeys:
        put_number(who, static_cast<std::int64_t>(values_.size()));
        break;
      case Query::DeleteKey:
        put_number(who, static_cast<std::int64_t>(values_.erase(key)));
        break;
      case Query::CancelWait:
        end_wait(who), sent[who] += '\1';
        break;
      case Query::Add:
        add(who, key, request.number);
        break;
      case Query::Barrier:
        barrier(who, key, request.number);
        break;
      case Query::CompareSet:
        compare_set(who, key, std::string(request.expected), value);
        break;
      case Query::Check:
        sent[who] += all_present(request) ? '\0' : '\1';
        break;
      case Query::Wait:
        wait(who, request);
        break;
      case Query::MultiGet:
        for (const auto each : request.keys)
          put_text(who, values_.count(std::string(each)) ? values_[std::string(each)] : "");
        break;
      case Query::MultiSet:
        for (std::size_t i = 0; i < request.keys.size(); ++i)
          write(std::string(request.keys[i]), std::string(request.values[i]));
        break;
      case Query::QueuePush:
        push(key, value);
        break;
      case Query::QueuePop:
        pop(who, key);
        break;
      case Query::QueueLen:
        put_number(who, static_cast<std::int64_t>(queues_[key].size()));
        break;
      case Query::ListKeys:
        put_number(who, static_cast<std::int64_t>(values_.size()));
        for (const auto& [name, ignored] : values_)
          put_text(who, name);
        break;
    }
  }

  void disconnect(std::uint32_t who) {
    end_wait(who);
    closed[who] = true;
  }

  std::size_t keys() const { return values_.size(); }
  std::size_t waiting() const {
    std::size_t count = 0;
    for (const Wait& wait : waits_)
      count += wait.missing.empty() ? 0 : 1;
    return count;
  }

 private:
  struct Wait {
    std::uint32_t who;
    std::vector<std::string> missing;
  };

  void end_wait(std::uint32_t who) {
    std::erase_if(waits_, [who](const Wait& wait) { return wait.who == who; });
  }

  void put_number(std::uint32_t who, std::int64_t number, int bytes = 8) {
    for (int i = 0; i < bytes; ++i)
      sent[who] += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff);
  }
  void put_text(std::uint32_t who, const std::string& text) {
    put_number(who, static_cast<std::int64_t>(text.size()));
    sent[who] += text;
  }

  bool present(const std::string& name) {
    return values_.count(name) > 0 || !queues_[name].empty();
  }
  bool all_present(const Request& request) {
    for (const auto key : request.keys)
      if (!present(std::string(key))) return false;
    return true;
  }

  // A write counts for each client that waits for the key. A queue counts if it has an entry now.
  void write(const std::string& key, const std::string& value) {
    values_[key] = value;
    arrive(key);
  }
  void arrive(const std::string& key) {
    for (std::size_t i = 0; i < waits_.size();) {
      Wait& wait = waits_[i];
      const std::size_t before = wait.missing.size();
      std::erase(wait.missing, key);
      if (wait.missing.size() < before && satisfied(wait)) {
        sent[wait.who] += '\0';
        waits_.erase(waits_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  bool satisfied(const Wait& wait) {
    for (const std::string& name : wait.missing)
      if (queues_[name].empty()) return false;
    return true;
  }

  void wait(std::uint32_t who, const Request& request) {
    end_wait(who);
    Wait wait{who, {}};
    for (const auto key : request.keys)
      if (!present(std::string(key))) wait.missing.emplace_back(key);
    if (wait.missing.empty())
      sent[who] += '\0';
    else
      waits_.push_back(wait);
  }

  // One entry releases one client: the one whose wait for this queue began first.
  void push(const std::string& name, const std::string& value) {
    queues_[name].push_back(value);
    for (std::size_t i = 0; i < waits_.size(); ++i) {
      Wait& wait = waits_[i];
      bool listed = false;
      for (const std::string& missing : wait.missing)
        listed = listed || missing == name;
      if (!listed || !satisfied(wait)) continue;
      sent[wait.who] += '\0';
      waits_.erase(waits_.begin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }

  void pop(std::uint32_t who, const std::string& name) {
    auto& queue = queues_[name];
    put_number(who, static_cast<std::int64_t>(queue.size()));
    if (queue.empty()) return;
    put_text(who, queue.front());
    queue.erase(queue.begin());
  }

  bool number_in(const std::string& key, std::int64_t& number) {
    number = 0;
    if (!values_.count(key)) return true;
    try {
      number = std::stoll(values_[key]);
      return true;
    } catch (const std::logic_error&) {
      return false;
    }
  }

  static std::int64_t sum(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }

  void add(std::uint32_t who, const std::string& key, std::int64_t delta) {
    std::int64_t number = 0;
    if (!number_in(key, number)) return disconnect(who);
    write(key, std::to_string(sum(number, delta)));
    put_number(who, sum(number, delta));
  }

  void barrier(std::uint32_t who, const std::string& key, std::int64_t world_size) {
    end_wait(who);
    std::int64_t number = 0;
    if (!number_in(key, number)) return disconnect(who);
    number = sum(number, 1);
    values_[key] = std::to_string(number);
    if (number >= world_size) {
      arrive(key);
      sent[who] += '\0';
    } else {
      waits_.push_back({who, {key}});
    }
  }

  void compare_set(std::uint32_t who, const std::string& key, const std::string& expected,
                   const std::string& desired) {
    if (!values_.count(key)) {
      if (!expected.empty()) return put_text(who, expected);
    } else if (values_[key] != expected) {
      return put_text(who, values_[key]);
    }
    write(key, desired);
    put_text(who, desired);
  }

  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::string>> queues_;
  std::vector<Wait> waits_;  // In the order in which the waits began.
};

}  // namespace muster::testing
