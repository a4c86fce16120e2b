// libFuzzer: musterd's answers, and musterctl's output for them on a terminal. The lines of the
// input are the bodies of musterd's answers, in the order of the requests. The first line is also a
// whole answer for each command.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "musterctl/rank_output.h"
#include "musterctl/run_text.h"
#include "tests/fuzz/shown_text.h"

namespace {

std::string_view answers;

std::optional<std::string> next_answer() {
  if (answers.empty()) return std::nullopt;
  const std::size_t end = std::min(answers.find('\n'), answers.size());
  std::string body(answers.substr(0, end));
  answers.remove_prefix(std::min(end + 1, answers.size()));
  return body;
}

}  // namespace

namespace muster::ctl {

// In place of client.cc, which asks through the network.
boost::system::result<HttpAnswer, ClientError> get(const Endpoint&, const std::string&,
                                                   const TokenCrypto*) {
  auto body = next_answer();
  if (!body) return ClientError{"musterd is gone"};
  return HttpAnswer{.status = body->starts_with("404") ? 404U : 200U, .body = *std::move(body)};
}
boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token, int) {
  return get(endpoint, target, token);
}

namespace {

using testing::check_shown;
using testing::check_shown_line;

void check_text(const Text& text) {
  check_shown(text ? *text : text.error().reason);
}

void check_texts(std::string_view json) {
  check_text(runs_text(json));
  check_text(status_text(json));
  check_text(why_text(json));
  check_text(nodes_text(json));
  check_text(done_text("job: drained; ", json));
  check_text(login_path(json));
  check_shown_line(error_text({.status = 500, .body = std::string(json)}));
  if (const auto only = only_run(json); only && only->total != 1 && !only->id.empty()) std::abort();
}

bool print(std::string_view text) {
  check_shown(text);
  return true;
}

void check_ranks(std::string_view text) {
  const Service service;
  for (const bool all : {false, true}) {
    answers = text;
    check_shown_line(
        show_output(service, {.run = "job", .all = all, .on_terminal = true}, print).reason);
  }
  answers = text;
  check_shown_line(show_stacks(service, "job", 3, print).reason);
  answers = text;
  check_shown_line(show_all_stacks(service, "job", print).reason);
}

}  // namespace
}  // namespace muster::ctl

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  muster::ctl::check_texts(text);
  muster::ctl::check_ranks(text);
  return 0;
}
