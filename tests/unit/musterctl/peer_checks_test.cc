#include "musterctl/peer_checks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "musterctl/doctor_nodes.h"
#include "musterctl/peer_json.h"

namespace muster::ctl::testing {

struct PairTest {
  PairTest() {
    Probe there{.stage = ProbeStage::Done,
                .from = "10.0.0.1",
                .to = "10.0.0.2",
                .port = 40'000,
                .interface = "eth0",
                .interface_mtu = 1500,
                .path_mtu = 1500,
                .segment = 1448,
                .latency_ms = 0.2,
                .ahead_seconds = 0.001};
    Probe back = there;
    back.from = "10.0.0.2";
    back.to = "10.0.0.1";
    NodeFacts other = node("node2", 1);
    facts.peers.push_back(
        {.node = other, .to = there, .from = back, .reduce = PairReduce{true, "", 4.0}});
  }
  static NodeFacts node(const std::string& host, int rank) {
    return {.rank = rank,
            .host = host,
            .address = "10.0.0." + std::to_string(rank + 1),
            .port = 40'000,
            .secret = std::string(kSecretDigits, 'a'),
            .muster = "0.1.0",
            .torch = "2.13.0",
            .reduces = true};
  }
  PeerFacts& peer() { return facts.peers.front(); }
  Check check(const std::string& name) {
    for (const Check& one : judge_pairs(facts))
      if (one.name == name) return one;
    FAIL("there is no check " + name);
    return {};
  }
  bool has(const std::string& name) {
    for (const Check& one : judge_pairs(facts))
      if (one.name == name) return true;
    return false;
  }

  PairFacts facts{
      .nodes = 2, .endpoint = "musterd:29400", .own = node("node1", 0), .complete = true};
};

TEST_CASE_METHOD(PairTest, "doctor of nodes: a healthy pair has no warning", "[unit][musterctl]") {
  const auto checks = judge_pairs(facts);
  for (const Check& one : checks) {
    INFO(one.name << ": " << one.found);
    CHECK(one.verdict == Verdict::Ok);
  }
  CHECK(checks.size() == 8);
  CHECK_THAT(pairs_text(facts), Catch::Contains("node2 (rank 1)"));
  CHECK_THAT(checks_text(checks), !Catch::Contains("node2"));  // The table shows it.
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: one blocked direction is named with its addresses",
                 "[unit][musterctl]") {
  peer().from->stage = ProbeStage::Connect;
  peer().from->error = "no answer in time";
  peer().reduce.reset();
  CHECK(check("reach_to").verdict == Verdict::Ok);
  const Check blocked = check("reach_from");
  CHECK(blocked.verdict == Verdict::Failure);
  CHECK(blocked.peer == "node2 (rank 1)");
  CHECK_THAT(blocked.found, Catch::Contains("eth0 10.0.0.2 to 10.0.0.1, port 40000"));
  CHECK_THAT(blocked.remedy, Catch::Contains("firewall"));
  CHECK(check("path_mtu").verdict == Verdict::Ok);
  CHECK_FALSE(has("all_reduce"));  // Not tried; reach_from says why.
}

TEST_CASE_METHOD(PairTest,
                 "doctor of nodes: nodes that cannot reach each other have no measurements",
                 "[unit][musterctl]") {
  peer().to->stage = ProbeStage::Connect;
  peer().to->error = "Connection refused";
  CHECK(check("reach_to").verdict == Verdict::Failure);
  CHECK_FALSE(has("latency"));
  CHECK_FALSE(has("path_mtu"));
  CHECK_THAT(pairs_text(facts), Catch::Contains("no way"));
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: lost long packets are explained by the MTU",
                 "[unit][musterctl]") {
  peer().to->stage = ProbeStage::Sending;
  peer().from->stage = ProbeStage::Receiving;
  const Check there = check("path_mtu");
  CHECK(there.verdict == Verdict::Failure);
  CHECK_THAT(there.found, Catch::Contains("lost on the way there"));
  CHECK_THAT(there.remedy, Catch::Contains("same MTU"));
  CHECK(check("reach_to").verdict == Verdict::Ok);  // The connection works.
  peer().to->stage = ProbeStage::Receiving;
  CHECK_THAT(check("path_mtu").found, Catch::Contains("in both directions"));
  peer().from->stage = ProbeStage::Done;
  CHECK_THAT(check("path_mtu").found, Catch::Contains("on the way back"));
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: different MTUs are a warning", "[unit][musterctl]") {
  peer().from->interface_mtu = 9000;
  CHECK(check("path_mtu").verdict == Verdict::Warning);
  CHECK_THAT(check("path_mtu").found, Catch::Contains("1500 here"));
  CHECK_THAT(check("path_mtu").found, Catch::Contains("9000 there"));
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: clocks, latency and versions", "[unit][musterctl]") {
  peer().to->ahead_seconds = -1.5;
  CHECK(check("peer_clock").verdict == Verdict::Warning);
  CHECK_THAT(check("peer_clock").found, Catch::Contains("1.500 s behind"));
  peer().to->ahead_seconds = 31;
  CHECK(check("peer_clock").verdict == Verdict::Failure);
  peer().to->latency_ms = 80;
  CHECK(check("latency").verdict == Verdict::Warning);
  peer().node.torch = "2.12.1";
  CHECK(check("versions").verdict == Verdict::Warning);
  CHECK_THAT(check("versions").found, Catch::Contains("torch 2.12.1 (here 2.13.0)"));
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: the all-reduce fails, or is not tried",
                 "[unit][musterctl]") {
  peer().reduce = PairReduce{false, "timed out", 0};
  CHECK(check("all_reduce").verdict == Verdict::Failure);
  CHECK_THAT(check("all_reduce").found, Catch::Contains("timed out"));
  peer().reduce = PairReduce{false, "", 3};
  CHECK_THAT(check("all_reduce").found, Catch::Contains("the sum is wrong"));
  peer().reduce.reset();
  peer().node.no_reduce = "--no-torch";
  CHECK(check("all_reduce").verdict == Verdict::Note);
  facts.own->reduces = false;
  facts.own->no_reduce = "there is no torch";
  CHECK(check("all_reduce").verdict == Verdict::Note);
  CHECK_THAT(check("all_reduce").found, Catch::Contains("there is no torch"));
  facts.own->no_reduce = "--crashed: the words of a Python mean nothing";
  CHECK_THAT(check("all_reduce").remedy, Catch::Contains("PYTHON_EXEC"));
  facts.no_torch = true;
  CHECK(check("all_reduce").remedy.empty());
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: a missing node is a failure", "[unit][musterctl]") {
  facts.nodes = 3;
  CHECK(check("nodes").verdict == Verdict::Ok);
  bool said = false;
  for (const Check& one : judge_pairs(facts))
    said = said || (one.peer == "rank 2" && one.verdict == Verdict::Failure);
  CHECK(said);
  facts.complete = false;
  CHECK(check("nodes").verdict == Verdict::Failure);
  CHECK_THAT(check("nodes").found, Catch::Contains("only 1 of 2"));
  peer().to.reset();
  CHECK(check("reach_to").verdict == Verdict::Failure);
  facts.own.reset();
  facts.error = "muster has ended with exit status 1";
  CHECK_THAT(check("nodes").found, Catch::Contains("have not met at musterd:29400: muster has"));
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: every check that is not ok has a remedy",
                 "[unit][musterctl]") {
  peer().to->stage = ProbeStage::Sending;
  peer().from.reset();
  peer().to->ahead_seconds = 40;
  peer().to->latency_ms = 500;
  peer().node.muster = "0.2.0";
  peer().reduce = PairReduce{false, "late", 0};
  facts.complete = false;
  for (const Check& one : judge_pairs(facts)) {
    INFO(one.name << ": " << one.found);
    CHECK((one.verdict == Verdict::Ok || !one.remedy.empty()));
  }
}

TEST_CASE_METHOD(PairTest,
                 "doctor of nodes: control characters of a host name do not reach the terminal",
                 "[unit][musterctl]") {
  peer().node.host = "\x1b[2Jnode2";
  CHECK(pairs_text(facts).find('\x1b') == std::string::npos);
  CHECK(checks_text(judge_pairs(facts)).find('\x1b') == std::string::npos);
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: JSON has each peer and the checks of each",
                 "[unit][musterctl]") {
  const auto json = nlohmann::json::parse(checks_json(judge_pairs(facts), pairs_json(facts)));
  CHECK(json["ok"] == true);
  REQUIRE(json["peers"].size() == 1);
  CHECK(json["peers"][0]["to"]["connects"] == true);
  CHECK(json["peers"][0]["from"]["from"] == "10.0.0.2");
  CHECK(json["checks"][1]["peer"] == "node2 (rank 1)");
}

TEST_CASE_METHOD(PairTest, "doctor of nodes: the worker's output is read line by line",
                 "[unit][musterctl]") {
  PairFacts read{.nodes = 2, .endpoint = "musterd:29400"};
  const std::string self = std::string(kThisNode) + to_json(*facts.own);
  handle_line(self, read);
  handle_line(to_json(peer()), read);
  handle_line("a line of somebody else", read);
  CHECK_FALSE(read.complete);
  handle_line(kAllTested, read);
  CHECK(read.complete);
  REQUIRE(read.own);
  CHECK(read.own->host == "node1");
  CHECK(read.peers.size() == 1);
  handle_line(self, read);  // The nodes meet again.
  CHECK(read.peers.empty());
  CHECK_FALSE(read.complete);
  handle_line(std::string(kTestFailed) + "no store", read);
  CHECK(read.error == "no store");
}

TEST_CASE("doctor of nodes: muster gets only the options and variables of the rendezvous",
          "[unit][musterctl]") {
  const auto words = muster_words({.nodes = 3,
                                   .endpoint = "h:1",
                                   .run = "doctor",
                                   .token_file = "/token",
                                   .peer = {.no_python = "--no-torch"}},
                                  "/bin");
  CHECK(words.front() == "/bin/muster");
  CHECK(std::find(words.begin(), words.end(), "--nnodes=3") != words.end());
  CHECK(std::find(words.begin(), words.end(), "--rdzv-token-file=/token") != words.end());
  CHECK(words.back() == "--no-python=--no-torch");
  const std::vector<std::string> kept =
      muster_environment({"PATH=/bin", "PET_NNODES=7", "MUSTER_PREFLIGHT=1",
                          "MUSTER_RDZV_TOKEN_FILE=/t", "PET_LOCAL_ADDR=10.0.0.1"});
  CHECK(kept == std::vector<std::string>{"PATH=/bin", "MUSTER_RDZV_TOKEN_FILE=/t",
                                         "PET_LOCAL_ADDR=10.0.0.1"});
}

}  // namespace muster::ctl::testing
