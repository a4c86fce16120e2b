#include "rendezvous/torchrun/python_time.h"

#include <algorithm>
#include <chrono>

#include "rendezvous/torchrun/state_rules.h"

namespace muster {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;
using Microseconds = std::chrono::microseconds;
template <typename T>
using OrReason = boost::system::result<T, std::string>;

// The first and the last instant of Python's datetime.
constexpr Microseconds kFirst =
    std::chrono::sys_days(std::chrono::year(1) / 1 / 1).time_since_epoch();
constexpr Microseconds kLast =
    std::chrono::sys_days(std::chrono::year(10000) / 1 / 1).time_since_epoch() - Microseconds(1);

/// The arguments of a call of `which`; null if the value is something else.
const pickle::Value* arguments_of(const Graph& graph, Ref ref, StateClass which) {
  const pickle::Value& value = graph.at(ref);
  if (value.kind != Kind::Call || !is_class(graph, value.items[0], which)) return nullptr;
  return &graph.at(value.items[1]);
}

/// timedelta(days, seconds, microseconds), as Python writes an offset: each in its own bounds.
OrReason<Microseconds> delta(const Graph& graph, const pickle::Value& arguments) {
  if (arguments.items.size() != 3) return std::string("a zone without an offset");
  for (const Ref item : arguments.items)
    if (!graph.is(item, Kind::Integer)) return std::string("a zone's offset is no integer");
  const std::int64_t days = graph.at(arguments.items[0]).number;
  const std::int64_t seconds = graph.at(arguments.items[1]).number;
  const std::int64_t microseconds = graph.at(arguments.items[2]).number;
  if (days < -1 || days > 0 || seconds < 0 || seconds >= 86'400 || microseconds < 0 ||
      microseconds >= 1'000'000)
    return std::string("a zone's offset is a day or more");
  return std::chrono::days(days) + std::chrono::seconds(seconds) + Microseconds(microseconds);
}

/// timezone(timedelta(…)[, name])
OrReason<Microseconds> zone_offset(const Graph& graph, const pickle::Value& arguments) {
  using namespace std::chrono_literals;
  const std::size_t count = arguments.items.size();
  if (count != 1 && !(count == 2 && graph.is(arguments.items[1], Kind::Text)))
    return std::string("a time whose zone is no fixed one");
  const pickle::Value* offset_arguments =
      arguments_of(graph, arguments.items[0], StateClass::Delta);
  if (offset_arguments == nullptr) return std::string("a zone without an offset");
  auto offset = delta(graph, *offset_arguments);
  if (offset && *offset <= -24h) return std::string("a zone's offset is a day or more");
  return offset;
}

OrReason<Microseconds> local_time(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  // Bit 7 of the month is datetime's `fold`: it tells two equal hours in autumn apart. It is
  // ignored, because torch writes UTC.
  const std::chrono::year_month_day date{std::chrono::year(at(0) << 8 | at(1)),
                                         std::chrono::month(at(2) & 0x7fU),
                                         std::chrono::day(at(3))};
  const int microsecond = at(7) << 16 | at(8) << 8 | at(9);
  if (!date.ok() || date.year() < std::chrono::year(1) || date.year() > std::chrono::year(9999) ||
      at(4) > 23 || at(5) > 59 || at(6) > 59 || microsecond > 999'999)
    return std::string("no date or no time of day");
  return std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(at(4)) +
         std::chrono::minutes(at(5)) + std::chrono::seconds(at(6)) + Microseconds(microsecond);
}

/// datetime(ten bytes, zone)
OrReason<WallTime> time_of(const Graph& graph, const pickle::Value& arguments) {
  const auto& items = arguments.items;
  if (items.empty() || !graph.is(items[0], Kind::Bytes) || graph.at(items[0]).text.size() != 10)
    return std::string("a time that is not ten bytes");
  if (items.size() != 2) return std::string("a time without a zone");
  const pickle::Value* zone = arguments_of(graph, items[1], StateClass::Zone);
  if (zone == nullptr) return std::string("a time whose zone is no fixed one");
  const auto offset = zone_offset(graph, *zone);
  if (!offset) return offset.error();
  const auto local = local_time(graph.at(items[0]).text);
  if (!local) return local.error();
  const Microseconds instant = *local - *offset;
  if (instant < kFirst || instant > kLast)
    return std::string("a time outside of the years 1 to 9999");
  return WallTime{instant.count()};
}

}  // namespace

std::array<char, 10> python_time_bytes(WallTime time) {
  const std::chrono::sys_time<Microseconds> instant{
      std::clamp(Microseconds(time.microseconds), kFirst, kLast)};
  const auto day = std::chrono::floor<std::chrono::days>(instant);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(instant - day);
  const int year = static_cast<int>(date.year());
  const auto micros = clock.subseconds().count();
  return {static_cast<char>(year >> 8),
          static_cast<char>(year & 0xff),
          static_cast<char>(static_cast<unsigned>(date.month())),
          static_cast<char>(static_cast<unsigned>(date.day())),
          static_cast<char>(clock.hours().count()),
          static_cast<char>(clock.minutes().count()),
          static_cast<char>(clock.seconds().count()),
          static_cast<char>(micros >> 16),
          static_cast<char>(micros >> 8 & 0xff),
          static_cast<char>(micros & 0xff)};
}

std::string check_time_call(const Graph& graph, Ref callee, Ref arguments) {
  const pickle::Value& given = graph.at(arguments);
  if (is_class(graph, callee, StateClass::Delta)) {
    const auto offset = delta(graph, given);
    return offset ? std::string() : offset.error();
  }
  if (is_class(graph, callee, StateClass::Zone)) {
    const auto offset = zone_offset(graph, given);
    return offset ? std::string() : offset.error();
  }
  if (!is_class(graph, callee, StateClass::Time)) return "a call of something that makes no time";
  const auto time = time_of(graph, given);
  return time ? std::string() : time.error();
}

OrReason<WallTime> python_time(const Graph& graph, Ref ref) {
  const pickle::Value* arguments = arguments_of(graph, ref, StateClass::Time);
  if (arguments == nullptr) return std::string("not a time");
  return time_of(graph, *arguments);
}

}  // namespace muster
