#include "rendezvous/wire/python_time.h"

#include <chrono>

namespace muster {
namespace {

using pickle::AllowedClass;
using pickle::Graph;
using pickle::Kind;
using pickle::Ref;
using pickle::Value;
using Microseconds = std::chrono::microseconds;
template <typename T>
using OrReason = boost::system::result<T, std::string>;

/// The arguments of a call of `which`; nothing if the value is something else.
const Value* arguments_of(const Graph& graph, Ref ref, AllowedClass which) {
  const Value& value = graph.at(ref);
  if (value.kind != Kind::Call || !graph.is_class(value.items[0], which)) return nullptr;
  return &graph.at(value.items[1]);
}

/// timezone(timedelta(days, seconds, microseconds)[, name])
OrReason<Microseconds> zone_offset(const Graph& graph, Ref ref) {
  using namespace std::chrono_literals;
  const Value* zone = arguments_of(graph, ref, AllowedClass::Zone);
  const std::size_t count = zone == nullptr ? 0 : zone->items.size();
  if (count != 1 && !(count == 2 && graph.is(zone->items[1], Kind::Text)))
    return std::string("a time whose zone is no fixed one");
  const Value* delta = arguments_of(graph, zone->items[0], AllowedClass::Delta);
  if (delta == nullptr || delta->items.size() != 3) return std::string("a zone without an offset");
  for (const Ref item : delta->items)
    if (!graph.is(item, Kind::Integer)) return std::string("a zone's offset is no integer");
  const std::int64_t days = graph.at(delta->items[0]).number;
  const std::int64_t seconds = graph.at(delta->items[1]).number;
  const std::int64_t microseconds = graph.at(delta->items[2]).number;
  if (days < -1 || days > 0 || seconds < 0 || seconds >= 86'400 || microseconds < 0 ||
      microseconds >= 1'000'000)
    return std::string("a zone's offset is a day or more");
  const Microseconds offset =
      std::chrono::days(days) + std::chrono::seconds(seconds) + Microseconds(microseconds);
  if (offset <= -24h) return std::string("a zone's offset is a day or more");
  return offset;
}

OrReason<Microseconds> local_time(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  // Bit 7 of the month says which of two equal hours in autumn it is; torch writes UTC.
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

}  // namespace

std::array<char, 10> python_time_bytes(WallTime time) {
  const std::chrono::sys_time<Microseconds> instant{Microseconds(time.microseconds)};
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

OrReason<WallTime> python_time(const Graph& graph, Ref ref) {
  const Value* call = arguments_of(graph, ref, AllowedClass::Time);
  if (call == nullptr) return std::string("not a time");
  const auto& items = call->items;
  if (items.empty() || !graph.is(items[0], Kind::Bytes) || graph.at(items[0]).text.size() != 10)
    return std::string("a time that is not ten bytes");
  if (items.size() != 2) return std::string("a time without a zone");
  const auto offset = zone_offset(graph, items[1]);
  if (!offset) return offset.error();
  const auto local = local_time(graph.at(items[0]).text);
  if (!local) return local.error();
  return WallTime{(*local - *offset).count()};
}

}  // namespace muster
