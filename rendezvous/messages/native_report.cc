#include "rendezvous/messages/native_report.h"

#include <algorithm>
#include <array>

#include "base/base64.h"
#include "pickle/utf8.h"

namespace muster::native {
namespace {

constexpr std::array<std::string_view, 4> kWorkerStates = {"starting", "running", "succeeded",
                                                           "failed"};
constexpr std::array<std::string_view, 2> kWhats = {"log", "stacks"};
// Three years: a sum with another time does not overflow.
constexpr std::int64_t kMaxAge = 100'000'000'000'000'000;
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int64_t>::max();

// The bytes of `text` that may be written. In a text that is not UTF-8, each byte may become a
// character of three bytes.
std::size_t room_for(std::string_view text) {
  return is_utf8(text) ? kMaxReportTextBytes : kMaxReportTextBytes / 3;
}

bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80;
}

std::string beginning_of(const std::string& text) {
  std::size_t end = std::min(text.size(), room_for(text));
  while (end > 0 && end < text.size() && is_utf8(text) && is_inside_character(text[end]))
    --end;
  return text.substr(0, end);
}

std::string end_of(const std::string& text) {
  std::size_t begin = text.size() - std::min(text.size(), room_for(text));
  while (begin > 0 && begin < text.size() && is_utf8(text) && is_inside_character(text[begin]))
    ++begin;
  return text.substr(begin);
}

OrderedJson write(const WorkerReport& worker) {
  OrderedJson out = {{"local_rank", worker.local_rank},
                     {"state", kWorkerStates[static_cast<std::size_t>(worker.state)]}};
  if (worker.pid != 0) out["pid"] = worker.pid;
  if (worker.exit_code != 0) out["exit_code"] = worker.exit_code;
  if (worker.step) out["step"] = *worker.step;
  if (worker.progress_before) out["progress_before_ns"] = worker.progress_before->count();
  return out;
}

WorkerReport read_worker(Fields fields) {
  WorkerReport worker;
  worker.local_rank = fields.number<int>("local_rank", 0, kMaxLocalWorldSize);
  worker.state = fields.one_of<WorkerReport::State>("state", kWorkerStates);
  if (fields.has("pid")) worker.pid = fields.number<int>("pid");
  if (fields.has("exit_code")) worker.exit_code = fields.number<int>("exit_code", -128, 255);
  if (fields.has("step"))
    worker.step =
        fields.number<std::int64_t>("step", std::numeric_limits<std::int64_t>::min(), kMaxCount);
  if (fields.has("progress_before_ns"))
    worker.progress_before =
        Duration(fields.number<std::int64_t>("progress_before_ns", 0, kMaxAge));
  return worker;
}

}  // namespace

OrderedJson write(const FailureReport& failure) {
  OrderedJson out = {{"round", failure.round},
                     {"local_rank", failure.local_rank},
                     {"rank", failure.rank},
                     {"pid", failure.pid},
                     {"exit", beginning_of(failure.exit)}};
  if (!failure.because.empty()) out["because"] = beginning_of(failure.because);
  if (!failure.message.empty()) out["message"] = beginning_of(failure.message);
  if (!failure.stderr_end.empty()) out["stderr_end"] = end_of(failure.stderr_end);
  return out;
}

FailureReport read_failure(Fields fields) {
  FailureReport failure;
  failure.round = fields.number<std::int64_t>("round");
  failure.local_rank = fields.number<int>("local_rank", 0, kMaxLocalWorldSize);
  failure.rank = fields.number<int>("rank");
  failure.pid = fields.number<int>("pid");
  failure.exit = fields.text("exit", kMaxReportTextBytes);
  if (fields.has("because")) failure.because = fields.text("because", kMaxReportTextBytes);
  if (fields.has("message")) failure.message = fields.text("message", kMaxReportTextBytes);
  if (fields.has("stderr_end")) failure.stderr_end = fields.text("stderr_end", kMaxReportTextBytes);
  return failure;
}

void write(const NodeReport& report, OrderedJson& out) {
  out["round"] = report.round;
  out["starts"] = report.starts;
  out["workers"] = report.workers;
  OrderedJson listed = OrderedJson::array();
  for (std::size_t i = 0; i < std::min(report.listed.size(), kMaxReportedWorkers); ++i)
    listed.push_back(write(report.listed[i]));
  out["listed"] = std::move(listed);
  if (report.failure) out["failure"] = write(*report.failure);
}

void read(Fields& fields, NodeReport& report) {
  report.round = fields.number<std::int64_t>("round");
  report.starts = fields.number<int>("starts");
  report.workers = fields.number<int>("workers", 0, kMaxLocalWorldSize);
  fields.each("listed", kMaxReportedWorkers,
              [&](Fields worker) { report.listed.push_back(read_worker(std::move(worker))); });
  if (fields.has("failure")) report.failure = read_failure(fields.object("failure"));
}

void write(const NodeAsked& asked, OrderedJson& out) {
  out["number"] = asked.number;
  out["what"] = kWhats[static_cast<std::size_t>(asked.what)];
  out["local_rank"] = asked.local_rank;
  if (asked.what != NodeAsked::What::Log) return;
  out["from_stderr"] = asked.from_stderr;
  out["offset"] = asked.offset;
  out["attempt"] = asked.attempt;
}

void read(Fields& fields, NodeAsked& asked) {
  asked.number = fields.number<std::uint64_t>("number", 0, kMaxCount);
  asked.what = fields.one_of<NodeAsked::What>("what", kWhats);
  asked.local_rank = fields.number<int>("local_rank", 0, kMaxLocalWorldSize);
  if (asked.what != NodeAsked::What::Log) return;
  asked.from_stderr = fields.boolean("from_stderr");
  asked.offset = fields.number<std::int64_t>("offset", std::numeric_limits<std::int64_t>::min() + 1,
                                             kMaxCount);
  asked.attempt = fields.number<int>("attempt");
}

void write(const NodeAnswered& answered, OrderedJson& out) {
  out["number"] = answered.number;
  if (!answered.error.empty()) {
    out["error"] = beginning_of(answered.error);
    return;
  }
  const std::string_view bytes = answered.bytes;
  out["base64"] = base64_encode(bytes.substr(0, kMaxPieceBytes));
  out["offset"] = answered.offset;
  out["size"] = answered.size;
  out["attempt"] = answered.attempt;
}

void read(Fields& fields, NodeAnswered& answered) {
  answered.number = fields.number<std::uint64_t>("number", 0, kMaxCount);
  if (fields.has("error")) {
    answered.error = fields.text("error", kMaxReportTextBytes);
    return;
  }
  const auto bytes = base64_decode(fields.text("base64", (kMaxPieceBytes + 2) / 3 * 4));
  if (bytes)
    answered.bytes = *bytes;
  else
    fields.fail("base64", "not base64");
  // Below the largest number, so that the offset of the piece's end fits into the type, too.
  constexpr auto kMaxOffset =
      std::numeric_limits<std::int64_t>::max() - std::int64_t{kMaxPieceBytes};
  answered.offset = fields.number<std::int64_t>("offset", 0, kMaxOffset);
  answered.size = fields.number<std::int64_t>("size");
  answered.attempt = fields.number<int>("attempt");
}

void write(const Notice& notice, OrderedJson& out) {
  out["text"] = beginning_of(notice.text);
}

void read(Fields& fields, Notice& notice) {
  notice.text = fields.text("text", kMaxReportTextBytes);
}

void write(const NotAMember& lost, OrderedJson& out) {
  if (!lost.why.empty()) out["why"] = beginning_of(lost.why);
}

void read(Fields& fields, NotAMember& lost) {
  if (fields.has("why")) lost.why = fields.text("why", kMaxReportTextBytes);
}

}  // namespace muster::native
