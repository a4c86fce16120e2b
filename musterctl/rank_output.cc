#include "musterctl/rank_output.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/json_integer.h"
#include "base/printable_text.h"
#include "musterctl/answer_json.h"
#include "musterctl/json_number.h"
#include "musterctl/patience.h"
#include "musterctl/run_text.h"
#include "rendezvous/rounds/limits.h"

namespace muster::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowPause(500);
// A node may take half a minute to read its workers' stacks.
constexpr int kStacksSeconds = 45;
// On a terminal each byte that a node has reported may become \xHH.
constexpr std::size_t kMaxShownEndBytes = 4 * kMaxReportTextBytes;

OutputEnd end_of(const HttpAnswer& answer) {
  return {answer.status == 404 ? 4 : 1, error_text(answer)};
}

std::string path_of(const std::string& run, int rank) {
  return "/api/v1/runs/" + percent_encoded(run) + "/ranks/" + std::to_string(rank);
}

std::string without_line_feeds(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

bool is_over(const std::string& run) {
  const auto json = parse_json(run);
  const auto state = json.is_object() ? json.find("state") : json.end();
  return state != json.end() && (*state == "succeeded" || *state == "failed");
}

// What the node has reported of the last lines of this rank's stderr, without line feeds at the
// end. Only if the worker has ended the last round; otherwise empty.
std::string reported_end(const std::string& run, const OutputRequest& request) {
  const auto json = parse_json(run);
  if (!json.is_object() || !request.from_stderr) return {};
  const auto report = json.value("first_failure_report", nlohmann::json());
  if (!report.is_object()) return {};
  const auto number = [](const nlohmann::json& object, const char* name) {
    return integer_of<std::int64_t>(object.value(name, nlohmann::json())).value_or(-1);
  };
  if (number(report, "rank") != request.rank || number(report, "round") != number(json, "round"))
    return {};
  const auto text = report.value("stderr_end", nlohmann::json());
  return text.is_string() ? without_line_feeds(text.get<std::string>()) : std::string();
}

void pause() {
  std::this_thread::sleep_until(std::chrono::steady_clock::now() + kFollowPause);
}

/// Shows the log of one rank, piece by piece, and follows the rank to its next attempts.
class RankLog {
 public:
  RankLog(const Service& service, const OutputRequest& request, const PrintOutput& print)
      : service_(service),
        request_(request),
        print_(print),
        offset_(request.all ? 0 : -kShownEndBytes) {}

  OutputEnd show();

 private:
  boost::system::result<HttpAnswer, ClientError> ask() const;
  void find_lines(int lines);
  std::optional<std::string> read_end(std::int64_t bytes, std::int64_t& begin);
  std::optional<OutputEnd> await_node(bool musterd_answers);
  bool follow_move(const Piece& piece);
  void show_piece(const Piece& piece, bool more);
  void show_note(const std::string& text);
  void show_text(const std::string& text);

  const Service& service_;
  const OutputRequest& request_;
  const PrintOutput& print_;
  std::int64_t offset_;
  int attempt_ = 0;
  std::string node_;         // Which node has answered; empty: none yet, or musterd is older.
  bool has_begun_ = false;   // A piece was shown.
  bool at_line_ = false;     // The first piece begins where a line begins.
  bool asks_again_ = false;  // The run has ended, and the node is asked for the last time.
  std::string cut_;          // On a terminal: the beginning of a character that is not complete.
  std::string shown_;        // The last bytes that were shown.
  Patience patience_;
  bool print_failed_ = false;
};

/// The last bytes of the log; `begin`: the offset of the first one. Nothing: it cannot be read, and
/// show() will say why.
std::optional<std::string> RankLog::read_end(std::int64_t bytes, std::int64_t& begin) {
  std::string text;
  offset_ = -bytes;
  for (bool is_first = true;; is_first = false) {
    const auto answer = ask();
    const auto piece = answer && answer->status == 200
                           ? parse_piece(answer->body)
                           : boost::system::result<Piece, ClientError>(ClientError{});
    if (!piece) return std::nullopt;
    if (is_first) begin = piece->offset;
    text += piece->bytes;
    offset_ = piece->next_offset;
    if (piece->next_offset >= piece->size || piece->bytes.empty() ||
        text.size() > static_cast<std::size_t>(kMaxEndBytes))
      return text;
  }
}

/// Sets the offset to the beginning of the last lines.
void RankLog::find_lines(int lines) {
  for (std::int64_t bytes = kShownEndBytes;; bytes *= 4) {
    std::int64_t begin = 0;
    const auto text = read_end(bytes, begin);
    offset_ = -kShownEndBytes;
    if (!text) return;
    const auto at = begin_of_last_lines(*text, lines);
    at_line_ = at || begin == 0;
    offset_ = begin + static_cast<std::int64_t>(at.value_or(0));
    if (at_line_ || bytes >= kMaxEndBytes) return;
  }
}

OutputEnd RankLog::show() {
  if (request_.lines && !request_.all) find_lines(*request_.lines);
  while (!print_failed_) {
    const auto answer = ask();
    if (request_.follow && has_begun_ && (!answer || answer->status != 200)) {
      const auto end = await_node(answer.has_value());
      if (!end || print_failed_) continue;
      return answer ? *end
                    : OutputEnd{3, "musterd's HTTP at " + service_.endpoint.text() +
                                       " has gone while the log was followed: musterd has "
                                       "ended, or the muster --http that served the run"};
    }
    if (!answer) return {3, answer.error().reason};
    if (answer->status != 200) return end_of(*answer);
    const auto piece = parse_piece(answer->body);
    if (!piece) return {1, piece.error().reason};
    if (follow_move(*piece)) continue;
    const bool more = piece->next_offset < piece->size && !piece->bytes.empty();
    show_piece(*piece, more);
    if (!more && !request_.follow) break;
    offset_ = piece->next_offset;
    attempt_ = piece->attempt;
    node_ = piece->node;
    has_begun_ = true;
    patience_.answered();
    if (!more && !print_failed_) pause();
  }
  return {};
}

boost::system::result<HttpAnswer, ClientError> RankLog::ask() const {
  return get(service_.endpoint,
             path_of(request_.run, request_.rank) +
                 "/log?stream=" + (request_.from_stderr ? "stderr" : "stdout") +
                 "&offset=" + std::to_string(offset_) + "&attempt=" + std::to_string(attempt_),
             service_.token.get());
}

// Between two attempts no worker has the rank. It comes back, or the run ends: then a value.
std::optional<OutputEnd> RankLog::await_node(bool musterd_answers) {
  // After its restart, musterd does not know the run before the nodes are back.
  const bool was_away = !musterd_answers || patience_.is_away();
  if (was_away && patience_.lasts(std::chrono::steady_clock::now())) {
    pause();
    return std::nullopt;
  }
  std::string run;
  bool has_ended = true;
  if (musterd_answers) {
    const auto answer = get(service_.endpoint, "/api/v1/runs/" + percent_encoded(request_.run),
                            service_.token.get());
    if (answer) run = answer->body;
    has_ended = !answer || answer->status == 404 || is_over(run);
  }
  if (has_ended && (asks_again_ || run.empty())) {
    const std::string text = end_text(run, request_, shown_);
    if (!text.empty()) show_note(text);
    return OutputEnd{};
  }
  // The node's report about its failed worker may still be on its way.
  asks_again_ = has_ended;
  pause();
  return std::nullopt;
}

/// Whether another node has the rank now. Its attempts and offsets are its own.
bool RankLog::follow_move(const Piece& piece) {
  if (node_.empty() || piece.node.empty() || piece.node == node_) return false;
  show_note("--- rank " + std::to_string(request_.rank) + " is on node " +
            terminal_text(piece.node) + " now; its last lines on node " + terminal_text(node_) +
            " may be missing here, and are in the log file there ---\n");
  node_.clear();
  attempt_ = 0;
  offset_ = 0;
  return true;
}

void RankLog::show_piece(const Piece& piece, bool more) {
  if (attempt_ != 0 && piece.attempt != attempt_)
    show_note("--- the workers were started again: attempt " + std::to_string(piece.attempt) +
              " of this node ---\n");
  const bool is_first = !has_begun_ && piece.offset > 0 && !request_.all && !at_line_;
  std::string text(is_first ? whole_lines(piece.bytes) : piece.bytes);
  if (request_.on_terminal) {
    text.insert(0, cut_);
    cut_.clear();
    if (more || request_.follow) cut_ = text.substr(text.size() - cut_character_bytes(text));
    text = terminal_text(std::string_view(text).substr(0, text.size() - cut_.size()));
  }
  show_text(text);
}

void RankLog::show_note(const std::string& text) {
  const bool in_line = !shown_.empty() && shown_.back() != '\n';
  show_text(in_line ? "\n" + text : text);
}

void RankLog::show_text(const std::string& text) {
  if (text.empty() || print_failed_) return;
  shown_ += text;
  shown_.erase(0, shown_.size() - std::min(shown_.size(), kMaxShownEndBytes));
  print_failed_ = !print_(text);
}

}  // namespace

boost::system::result<Piece, ClientError> parse_piece(std::string_view json) {
  ClientError strange{kNotMusterdsAnswer};
  const auto object = parse_json(json);
  if (!object.is_object()) return strange;
  const auto number = [&]<typename Integer>(const char* name, Integer missing) {
    const auto found = object.find(name);
    return found == object.end() ? missing : integer_of<Integer>(*found).value_or(missing);
  };
  const auto text = object.find("base64");
  if (text == object.end() || !text->is_string()) return strange;
  const auto bytes = base64_decode(text->get_ref<const std::string&>());
  Piece piece{.offset = number("offset", std::int64_t{-1}),
              .next_offset = number("next_offset", std::int64_t{-1}),
              .size = number("size", std::int64_t{-1}),
              .attempt = number("attempt", -1)};
  if (!bytes || piece.offset < 0 || piece.next_offset < piece.offset || piece.attempt < 0)
    return strange;
  piece.bytes = *bytes;
  if (const auto node = object.find("node"); node != object.end() && node->is_string())
    piece.node = node->get<std::string>();
  return piece;
}

std::string end_text(const std::string& run, const OutputRequest& request,
                     const std::string& shown) {
  const std::string rank = "rank " + std::to_string(request.rank);
  const std::string reported = reported_end(run, request);
  if (reported.empty())
    return "--- the last lines of " + rank +
           " may be missing here: they are in the log file on its node ---\n";
  const std::string lines =
      without_line_feeds(request.on_terminal ? terminal_text(reported) : reported);
  if (without_line_feeds(shown).ends_with(lines)) return {};
  return "--- the last lines of " + rank + " as its node has reported them ---\n" + lines + "\n";
}

std::string_view whole_lines(std::string_view bytes) {
  const std::size_t end = bytes.find_first_of("\r\n");
  if (end == std::string_view::npos) return bytes;
  const std::size_t next = end + (bytes.substr(end).starts_with("\r\n") ? 2 : 1);
  return next == bytes.size() ? bytes : bytes.substr(next);
}

std::optional<std::size_t> begin_of_last_lines(std::string_view text, int lines) {
  std::size_t begin = text.size();
  if (begin > 0 && text.back() == '\n' && lines > 0) --begin;  // It ends the last line.
  for (int line = 0; line < lines; ++line) {
    const std::size_t end = text.substr(0, begin).rfind('\n');
    if (end == std::string_view::npos) return std::nullopt;  // The line may begin before the text.
    begin = line + 1 < lines ? end : end + 1;
  }
  return begin;
}

OutputEnd show_output(const Service& service, const OutputRequest& request,
                      const PrintOutput& print) {
  return RankLog(service, request, print).show();
}

OutputEnd show_stacks(const Service& service, const std::string& run, int rank,
                      const PrintOutput& print) {
  const auto answer =
      post(service.endpoint, path_of(run, rank) + "/stacks", service.token.get(), kStacksSeconds);
  if (!answer) return {3, answer.error().reason};
  if (answer->status != 200) return end_of(*answer);
  const auto piece = parse_piece(answer->body);
  if (!piece) return {1, piece.error().reason};
  std::string text = terminal_text(piece->bytes);
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (piece->next_offset < piece->size)
    text += "--- cut: the file on its node has " + std::to_string(piece->size) + " bytes ---\n";
  print(text);
  return {};
}

RanksAsked ranks_to_ask(const std::string& nodes) {
  const auto json = parse_json(nodes);
  const auto list =
      json.is_object() ? json.value("nodes", nlohmann::json::array()) : nlohmann::json::array();
  std::vector<std::pair<int, int>> blocks;  // The first rank of each node, and how many it has.
  for (const auto& node : list) {
    if (!node.is_object()) continue;
    const auto first = rank_number(node.value("first_rank", nlohmann::json()));
    const auto count = rank_number(node.value("local_world_size", nlohmann::json()));
    if (first && count) blocks.emplace_back(*first, *count);
  }
  std::sort(blocks.begin(), blocks.end());  // musterd lists nodes in the order of their joins.
  RanksAsked asked;
  for (const auto& [first, count] : blocks) {
    const int room = static_cast<int>(kMaxRanksAsked - asked.ranks.size());
    for (int i = 0; i < std::min(count, room); ++i)
      asked.ranks.push_back(first + i);
    if (count <= room) continue;
    if (asked.left_out == 0) asked.first_left_out = first + room;
    asked.left_out += count - room;
  }
  return asked;
}

OutputEnd show_all_stacks(const Service& service, const std::string& run,
                          const PrintOutput& print) {
  const auto answer =
      get(service.endpoint, "/api/v1/runs/" + percent_encoded(run) + "/nodes", service.token.get());
  if (!answer) return {3, answer.error().reason};
  if (answer->status != 200) return end_of(*answer);
  const RanksAsked asked = ranks_to_ask(answer->body);
  if (asked.ranks.empty())
    return {1, "no muster node of the run is in a round, so there are no stacks"};
  OutputEnd end;
  for (const int rank : asked.ranks) {
    if (!print("=== rank " + std::to_string(rank) + "\n")) return {};
    OutputEnd one = show_stacks(service, run, rank, print);
    if (one.exit_code == 0) continue;
    if (!print(one.reason + "\n")) return {};
    if (one.exit_code != 1) return one;  // musterd does not answer, or does not know the run.
    end = {1, "not every rank could be asked"};
  }
  if (asked.left_out > 0)
    end = {1, std::to_string(asked.left_out) + " ranks, from rank " +
                  std::to_string(asked.first_left_out) + " on, were not asked: at most " +
                  std::to_string(kMaxRanksAsked) +
                  " are asked at a time. `musterctl stacks RUN RANK` asks one"};
  return end;
}

}  // namespace muster::ctl
