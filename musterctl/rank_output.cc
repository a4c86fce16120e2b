#include "musterctl/rank_output.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "musterctl/json_number.h"
#include "musterctl/run_text.h"
#include "rendezvous/core/json_integer.h"
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

bool has_ended(const Service& service, const std::string& run) {
  const auto answer =
      get(service.endpoint, "/api/v1/runs/" + percent_encoded(run), service.token.get());
  if (!answer || answer->status == 404) return true;
  const auto json = nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  const auto state = json.is_object() ? json.find("state") : json.end();
  return state != json.end() && (*state == "succeeded" || *state == "failed");
}

void pause() {
  std::this_thread::sleep_until(std::chrono::steady_clock::now() + kFollowPause);
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
  return piece;
}

OutputEnd show_output(const Service& service, const OutputRequest& request,
                      const std::function<bool(std::string_view)>& print) {
  std::int64_t offset = request.all ? 0 : -kShownEndBytes;
  int attempt = 0;
  std::string cut;  // On a terminal: the first bytes of a character that is not complete yet.
  for (bool first = true;; first = false) {
    const auto answer =
        get(service.endpoint,
            path_of(request.run, request.rank) +
                "/log?stream=" + (request.from_stderr ? "stderr" : "stdout") +
                "&offset=" + std::to_string(offset) + "&attempt=" + std::to_string(attempt),
            service.token.get(), Role::Operator);
    if (!answer) return {3, answer.error().reason};
    // Between two attempts no worker has the rank. It comes back, or the run ends.
    if (answer->status != 200 && request.follow && !first) {
      if (answer->status == 404 || has_ended(service, request.run)) return {};
      pause();
      continue;
    }
    if (answer->status != 200) return end_of(*answer);
    const auto piece = parse_piece(answer->body);
    if (!piece) return {1, piece.error().reason};
    std::string shown(first && piece->offset > 0 && !request.all ? whole_lines(piece->bytes)
                                                                 : piece->bytes);
    const bool more = piece->next_offset < piece->size && !piece->bytes.empty();
    if (request.on_terminal) {
      shown.insert(0, cut);
      cut.clear();
      if (more || request.follow) cut = shown.substr(shown.size() - cut_character_bytes(shown));
      shown = terminal_text(std::string_view(shown).substr(0, shown.size() - cut.size()));
    }
    if (!first && piece->attempt != attempt)
      shown.insert(0, "--- the workers were started again: attempt " +
                          std::to_string(piece->attempt) + " of this node ---\n");
    if (!shown.empty() && !print(shown)) return {};
    if (!more && !request.follow) return {};
    offset = piece->next_offset;
    attempt = piece->attempt;
    if (!more) pause();
  }
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
