#include "rendezvous/access/token_proof.h"

#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/limits.h"
#include "tests/support/plain_crypto.h"

namespace muster::testing {
namespace {

std::string sent_json(const NativeRequest& request) {
  return encode(request).substr(1 + kNativeLengthBytes);
}

std::string refusal_in(const TokenGate::Step& step) {
  REQUIRE(step.reply);
  REQUIRE(std::holds_alternative<NativeRefused>(*step.reply));
  CHECK_FALSE(step.close.empty());
  CHECK_FALSE(step.cause.empty());
  CHECK_FALSE(step.serve);
  return std::get<NativeRefused>(*step.reply).text;
}

struct TokenProofTest {
  std::shared_ptr<PlainCrypto> common = std::make_shared<PlainCrypto>("secret");
  PlainCrypto& host_crypto = *common;
  PlainCrypto node_crypto{"secret"};
  SharedHostTokens tokens = std::make_shared<const HostTokens>(common);
  TokenGate gate{tokens};

  static std::string hello(const TokenClaim& claim, const std::string& run = "job") {
    return sent_json(NativeHello{.muster_version = "1", .run_id = run, .nonce = claim.nonce()});
  }
  NativeChallenge challenge(const std::string& first) {
    const auto step = gate.receive(first);
    REQUIRE(step.close.empty());
    REQUIRE_FALSE(step.serve);
    return std::get<NativeChallenge>(step.reply.value());
  }
};

TEST_CASE_METHOD(TokenProofTest, "token: with the same token each side proves itself to the other",
                 "[unit][rendezvous]") {
  TokenClaim claim(node_crypto);
  CHECK(claim.nonce().size() == kProofDigits);
  const std::string first = hello(claim);
  const NativeChallenge asked = challenge(first);
  CHECK_FALSE(gate.open());
  CHECK_FALSE(claim.is_host(""));
  const NativeProve answer = claim.answer(asked, first);
  const auto step = gate.receive(sent_json(answer));
  CHECK(gate.open());
  CHECK(step.serve == first);
  CHECK_FALSE(step.reply);
  CHECK(claim.is_host(gate.host_proof()));
  CHECK(gate.host_proof() != answer.proof);
  CHECK_FALSE(claim.is_host(answer.proof));
  CHECK_FALSE(claim.is_host(""));
  CHECK(host_crypto.compared == 1);  // The host has used the comparison in constant time.
}

TEST_CASE_METHOD(TokenProofTest, "token: a reach message is proven like a hello",
                 "[unit][rendezvous]") {
  TokenClaim claim(node_crypto);
  const std::string first = sent_json(
      NativeReach{.generation = 3, .group_rank = 1, .run_id = "job", .nonce = claim.nonce()});
  const auto step = gate.receive(sent_json(claim.answer(challenge(first), first)));
  CHECK(step.serve == first);
  CHECK(claim.is_host(gate.host_proof()));
}

TEST_CASE_METHOD(TokenProofTest,
                 "token: a proof with another token, first message or role is refused",
                 "[unit][rendezvous]") {
  TokenClaim claim(node_crypto);
  const std::string first = hello(claim);
  const NativeChallenge asked = challenge(first);
  std::string proof;
  SECTION("another token") {
    const PlainCrypto other("guess");
    TokenClaim wrong(other);
    proof = wrong.answer(asked, first).proof;
  }
  SECTION("another run") {
    proof = claim.answer(asked, hello(claim, "other")).proof;
  }
  SECTION("another challenge") {
    proof = claim.answer({std::string(kProofDigits, '0')}, first).proof;
  }
  SECTION("the host's own proof") {
    TokenGate twin(tokens);
    const auto its = std::get<NativeChallenge>(twin.receive(first).reply.value());
    twin.receive(sent_json(claim.answer(its, first)));
    proof = twin.host_proof();
  }
  CHECK_THAT(refusal_in(gate.receive(sent_json(NativeProve{proof}))),
             Catch::Contains("token differs from the rendezvous' token"));
  CHECK_FALSE(gate.open());
  CHECK(gate.host_proof().empty());
}

TEST_CASE_METHOD(TokenProofTest, "token: a run with a token of its own takes no other",
                 "[unit][rendezvous]") {
  tokens = std::make_shared<const HostTokens>(
      common, HostTokens::OfRuns{{"own", std::make_shared<PlainCrypto>("of the run")}});
  const auto is_let_in = [&](const std::string& run, const char* token) {
    const PlainCrypto crypto{token};
    TokenClaim claim(crypto);
    TokenGate at(tokens);
    const std::string first = hello(claim, run);
    const auto asked = std::get<NativeChallenge>(at.receive(first).reply.value());
    at.receive(sent_json(claim.answer(asked, first)));
    CHECK(claim.is_host(at.host_proof()) == at.open());
    return at.open();
  };
  CHECK(is_let_in("own", "of the run"));
  CHECK_FALSE(is_let_in("own", "secret"));
  CHECK_FALSE(is_let_in("job", "of the run"));
  CHECK(is_let_in("job", "secret"));
}

TEST_CASE_METHOD(TokenProofTest, "token: a client without a nonce or a proof gets no service",
                 "[unit][rendezvous]") {
  for (const NativeRequest& request :
       {NativeRequest(NativeHello{.run_id = "job"}), NativeRequest(NativeReach{}),
        NativeRequest(KeptAlive{}), NativeRequest(NodeLeft{}),
        NativeRequest(NativeProve{std::string(64, '0')})}) {
    TokenGate fresh(tokens);
    CHECK_THAT(refusal_in(fresh.receive(sent_json(request))), Catch::Contains("--rdzv-token-file"));
  }
  TokenClaim claim(node_crypto);
  for (const std::string& second : {hello(claim), sent_json(KeptAlive{}), std::string("[]"),
                                    std::string(R"({"type":"prove"})")}) {
    TokenGate fresh(tokens);
    REQUIRE(fresh.receive(hello(claim)).reply);
    CHECK_THAT(refusal_in(fresh.receive(second)), Catch::Contains("is no proof of it"));
    CHECK_FALSE(fresh.open());
  }
}

TEST_CASE_METHOD(TokenProofTest,
                 "token: unreadable messages are left to the decoder, which refuses them",
                 "[unit][rendezvous]") {
  for (const std::string& first :
       {std::string("{"), sent_json(NativeHello{.protocol_version = 99, .muster_version = "9"})}) {
    TokenGate fresh(tokens);
    const auto step = fresh.receive(first);
    CHECK(step.serve == first);
    CHECK_FALSE(fresh.open());
  }
}

TEST_CASE("token: nonces and proofs have an exact number of digits", "[unit][rendezvous]") {
  const auto reads = [](const std::string& nonce) {
    return decode_native_message(R"({"type":"challenge","nonce":")" + nonce + "\"}").has_value();
  };
  CHECK(reads(std::string(64, 'a')));
  CHECK_FALSE(reads(std::string(64, 'A')));
  CHECK_FALSE(reads(std::string(64, 'g')));
  CHECK_FALSE(reads(std::string(63, 'a')));
  CHECK_FALSE(reads(std::string(65, 'a')));
  CHECK_FALSE(reads(""));
}

}  // namespace
}  // namespace muster::testing
