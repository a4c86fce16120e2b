#include "musterctl/doctor_nodes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "musterctl/child_program.h"
#include "musterctl/peer_json.h"

namespace muster::ctl {
namespace {

// A user may set options of muster in variables. The doctor's run uses only those that say where
// and how nodes meet: the others are meant for jobs.
constexpr std::array<std::string_view, 2> kJobOptions = {"PET_", "MUSTER_"};
constexpr std::array<std::string_view, 4> kMeetingOptions = {
    "MUSTER_RDZV_", "MUSTER_C10D_ALLOW=", "PET_LOCAL_ADDR=", "PET_RDZV_CONF="};

bool begins_with_any(std::string_view text, std::span<const std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [text](std::string_view begin) { return text.starts_with(begin); });
}

/// Calls `handle` for each line until the end of the output.
template <typename Handle>
void read_lines(int fd, const Handle& handle) {
  std::string line;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    for (const char byte : std::string_view(piece.data(), static_cast<std::size_t>(got))) {
      if (byte == '\n') {
        handle(line);
        line.clear();
      } else if (line.size() <= kMaxPeerJson) {
        line += byte;
      }
    }
  }
}

}  // namespace

std::vector<std::string> muster_words(const NodesRequest& request, const std::string& folder) {
  std::vector<std::string> words{
      folder + "/muster",        "--nnodes=" + std::to_string(request.nodes),
      "--nproc-per-node=1",      "--max-restarts=0",
      "--rdzv-backend=c10d",     "--rdzv-endpoint=" + request.endpoint,
      "--rdzv-id=" + request.run};
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(name + value);
  };
  add("--local-addr=", request.local_addr);
  add("--rdzv-token-file=", request.token_file);
  add("--rdzv-tls-ca=", request.tls.ca);
  add("--rdzv-tls-cert=", request.tls.certificate);
  add("--rdzv-tls-key=", request.tls.key);
  words.emplace_back("--no-python");
  words.push_back(folder + "/musterctl");
  words.emplace_back("doctor-peer");
  add("--python=", request.peer.python);
  add("--no-python=", request.peer.no_python);
  add("--torch=", request.peer.torch);
  add("--nccl=", request.peer.nccl);
  return words;
}

std::vector<std::string> muster_environment(std::vector<std::string> variables) {
  std::erase_if(variables, [](const std::string& variable) {
    return begins_with_any(variable, kJobOptions) && !begins_with_any(variable, kMeetingOptions);
  });
  return variables;
}

void handle_line(std::string_view line, PairFacts& facts) {
  if (line == kAllTested) {
    facts.complete = true;
  } else if (line.starts_with(kTestFailed)) {
    facts.error = line.substr(kTestFailed.size());
  } else if (line.starts_with(kThisNode)) {
    facts = {.nodes = facts.nodes,
             .endpoint = facts.endpoint,
             .no_torch = facts.no_torch,
             .own = read_node(line.substr(kThisNode.size()))};
  } else if (auto peer = read_peer(line)) {
    facts.peers.push_back(*std::move(peer));
  }
}

PairFacts test_nodes(const NodesRequest& request) {
  PairFacts facts{
      .nodes = request.nodes, .endpoint = request.endpoint, .no_torch = request.no_torch};
  std::error_code ec;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ec);
  const auto words = muster_words(request, program.parent_path().string());
  auto muster =
      ChildProgram::start(words, muster_environment(own_environment()), ChildProgram::Stdin::Null);
  if (!muster) {
    facts.error = "cannot start " + words.front() + ": " + muster.error().message() +
                  " (it is installed with musterctl, beside it)";
    return facts;
  }
  // The terminal sends Ctrl-C to muster, too, which ends. musterctl then shows the results so far.
  ::signal(SIGINT, SIG_IGN);
  read_lines(muster->output.get(), [&facts](const std::string& line) { handle_line(line, facts); });
  const std::string ended = muster->wait();
  ::signal(SIGINT, SIG_DFL);
  if (facts.error.empty() && !ended.empty()) facts.error = "muster has ended with " + ended;
  std::sort(facts.peers.begin(), facts.peers.end(), [](const PeerFacts& one, const PeerFacts& two) {
    return one.node.rank < two.node.rank;
  });
  return facts;
}

}  // namespace muster::ctl
