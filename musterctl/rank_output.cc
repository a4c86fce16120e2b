#include "musterctl/rank_output.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "musterctl/json_number.h"
#include "musterctl/run_text.h"
#include "rendezvous/core/json_integer.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/printable_text.h"

namespace muster::ctl {
namespace {

constexpr std::chrono::milliseconds kFollowPause(500);
// A node may take half a minute to read its workers' stacks.
constexpr int kStacksSeconds = 45;
constexpr std::size_t kMaxRanksAsked = 256;

OutputEnd end_of(const HttpAnswer& answer) {
  return {answer.status == 404 ? 4 : 1, error_text(answer.body)};
}

std::string path_of(const std::string& run, int rank) {
  return "/api/v1/runs/" + percent_encoded(run) + "/ranks/" + std::to_string(rank);
}

// Removes the first line, because the end of a file begins somewhere inside a line.
std::string_view whole_lines(std::string_view bytes) {
  const std::size_t newline = bytes.find('\n');
  return newline == std::string_view::npos ? bytes : bytes.substr(newline + 1);
}

std::string without_line_feeds(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text;
}

bool is_over(const std::string& run) {
  const auto json = nlohmann::json::parse(run, nullptr, /*allow_exceptions=*/false);
  const auto state = json.is_object() ? json.find("state") : json.end();
  return state != json.end() && (*state == "succeeded" || *state == "failed");
}

// What the node has reported of the last lines of this rank's stderr, without line feeds at the
// end. Only if the worker has ended the last round; otherwise empty.
std::string reported_end(const std::string& run, const OutputRequest& request) {
  const auto json = nlohmann::json::parse(run, nullptr, /*allow_exceptions=*/false);
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
  using Print = std::function<bool(std::string_view)>;
  RankLog(const Service& service, const OutputRequest& request, const Print& print)
      : service_(service),
        request_(request),
        print_(print),
        offset_(request.all ? 0 : -kShownEndBytes) {}

  OutputEnd show();

 private:
  boost::system::result<HttpAnswer, ClientError> ask() const;
  std::optional<OutputEnd> await_node(bool musterd_answers);
  bool follow_move(const Piece& piece);
  bool show_piece(const Piece& piece, bool more);
  bool show_note(const std::string& text);
  bool show_text(const std::string& text);

  const Service& service_;
  const OutputRequest& request_;
  const Print& print_;
  std::int64_t offset_;
  int attempt_ = 0;
  std::string node_;         // Which node has answered; empty: none yet, or musterd is older.
  bool has_begun_ = false;   // A piece was shown.
  bool asks_again_ = false;  // The run has ended, and the node is asked for the last time.
  std::string cut_;          // On a terminal: the beginning of a character that is not complete.
  std::string shown_;        // The last bytes that were shown.
};

OutputEnd RankLog::show() {
  for (;;) {
    const auto answer = ask();
    if (request_.follow && has_begun_ && (!answer || answer->status != 200)) {
      if (const auto end = await_node(answer.has_value()))
        return answer ? *end : OutputEnd{3, answer.error().reason};
      continue;
    }
    if (!answer) return {3, answer.error().reason};
    if (answer->status != 200) return end_of(*answer);
    const auto piece = parse_piece(answer->body);
    if (!piece) return {1, piece.error().reason};
    if (follow_move(*piece)) continue;
    const bool more = piece->next_offset < piece->size && !piece->bytes.empty();
    if (!show_piece(*piece, more)) return {};
    if (!more && !request_.follow) return {};
    offset_ = piece->next_offset;
    attempt_ = piece->attempt;
    node_ = piece->node;
    has_begun_ = true;
    if (!more) pause();
  }
}

boost::system::result<HttpAnswer, ClientError> RankLog::ask() const {
  return get(service_.endpoint,
             path_of(request_.run, request_.rank) +
                 "/log?stream=" + (request_.from_stderr ? "stderr" : "stdout") +
                 "&offset=" + std::to_string(offset_) + "&attempt=" + std::to_string(attempt_),
             service_.token.get(), Role::Operator);
}

// Between two attempts no worker has the rank. It comes back, or the run ends: then a value.
std::optional<OutputEnd> RankLog::await_node(bool musterd_answers) {
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

/// False: the reader of the output is gone.
bool RankLog::show_piece(const Piece& piece, bool more) {
  if (attempt_ != 0 && piece.attempt != attempt_ &&
      !show_note("--- the workers were started again: attempt " + std::to_string(piece.attempt) +
                 " of this node ---\n"))
    return false;
  const bool is_first = !has_begun_ && piece.offset > 0 && !request_.all;
  std::string text(is_first ? whole_lines(piece.bytes) : piece.bytes);
  if (request_.on_terminal) {
    text.insert(0, cut_);
    cut_.clear();
    if (more || request_.follow) cut_ = text.substr(text.size() - cut_character_bytes(text));
    text = terminal_text(std::string_view(text).substr(0, text.size() - cut_.size()));
  }
  return show_text(text);
}

bool RankLog::show_note(const std::string& text) {
  const bool in_line = !shown_.empty() && shown_.back() != '\n';
  return show_text(in_line ? "\n" + text : text);
}

bool RankLog::show_text(const std::string& text) {
  if (text.empty()) return true;
  shown_ += text;
  shown_.erase(0, shown_.size() - std::min(shown_.size(), kMaxReportTextBytes));
  return print_(text);
}

}  // namespace

boost::system::result<Piece, ClientError> parse_piece(std::string_view json) {
  ClientError strange{
      "the answer is not what musterd says: is it another version? `musterctl --version` and "
      "`musterd --version` tell"};
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
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
  if (without_line_feeds(shown).ends_with(reported)) return {};
  return "--- the last lines of " + rank + " as its node has reported them ---\n" +
         (request.on_terminal ? terminal_text(reported) : reported) + "\n";
}

OutputEnd show_output(const Service& service, const OutputRequest& request,
                      const std::function<bool(std::string_view)>& print) {
  return RankLog(service, request, print).show();
}

OutputEnd show_stacks(const Service& service, const std::string& run, int rank,
                      const std::function<bool(std::string_view)>& print) {
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

OutputEnd show_all_stacks(const Service& service, const std::string& run,
                          const std::function<bool(std::string_view)>& print) {
  const auto answer =
      get(service.endpoint, "/api/v1/runs/" + percent_encoded(run) + "/nodes", service.token.get());
  if (!answer) return {3, answer.error().reason};
  if (answer->status != 200) return end_of(*answer);
  const auto nodes = nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  std::vector<int> ranks;
  const auto list =
      nodes.is_object() ? nodes.value("nodes", nlohmann::json::array()) : nlohmann::json::array();
  for (const auto& node : list) {
    if (!node.is_object()) continue;
    const auto first = rank_number(node.value("first_rank", nlohmann::json()));
    const auto count = rank_number(node.value("local_world_size", nlohmann::json()));
    if (!first || !count) continue;
    for (int i = 0; i < *count && ranks.size() < kMaxRanksAsked; ++i)
      ranks.push_back(*first + i);
  }
  std::sort(ranks.begin(), ranks.end());  // musterd lists nodes in the order of their joins.
  if (ranks.empty()) return {1, "no muster node of the run is in a round: nothing stands anywhere"};
  OutputEnd end;
  for (const int rank : ranks) {
    if (!print("=== rank " + std::to_string(rank) + "\n")) return {};
    const OutputEnd one = show_stacks(service, run, rank, print);
    if (one.exit_code == 0) continue;
    print(one.reason + "\n");
    if (one.exit_code != 1) return one;  // musterd does not answer, or does not know the run.
    end = {1, "not every rank could be asked"};
  }
  return end;
}

}  // namespace muster::ctl
