#include "rendezvous/access/token_file.h"

#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "rendezvous/access/openssl_token.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

const std::string kToken = "0123456789abcdef";

struct TokenFileTest {
  std::string file(const std::string& text, fs::perms mode = fs::perms(0600)) {
    const fs::path path = folder.dir / "token";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    fs::permissions(path, mode);
    return path.string();
  }
  static std::string token_in(const std::string& path) {
    const auto token = read_token_file(path);
    REQUIRE(token.has_value());
    return *token;
  }
  static std::string reason(const std::string& path) {
    const auto token = read_token_file(path);
    REQUIRE_FALSE(token.has_value());
    CHECK_THAT(token.error().reason, Contains(path));
    return token.error().reason;
  }
  TempFolder folder;
};

TEST_CASE_METHOD(TokenFileTest, "token file: tokens of single runs", "[unit][rendezvous]") {
  const auto tokens = read_run_tokens_file(file("# runs\njob " + kToken + "\n"));
  REQUIRE(tokens.has_value());
  CHECK(*tokens == RunTokenTexts{{"job", kToken}});
  const std::string path = file("job " + kToken + "\nother word\n");
  const auto refused = read_run_tokens_file(path);
  REQUIRE_FALSE(refused.has_value());
  CHECK_THAT(refused.error().reason, Contains(path) && Contains("line 2: its token has 4"));
  CHECK_FALSE(read_run_tokens_file(file("job " + kToken, fs::perms(0644))).has_value());
  CHECK_FALSE(read_run_tokens_file(file(std::string(kMaxRunTokensBytes + 1, '\n'))).has_value());
}

TEST_CASE_METHOD(TokenFileTest, "token file: white space around the token is not the token",
                 "[unit][rendezvous]") {
  CHECK(token_in(file(kToken)) == kToken);
  CHECK(token_in(file("\n " + kToken + "\r\n\n")) == kToken);
  CHECK(token_in(file(std::string(kMaxTokenBytes, 'x'))).size() == kMaxTokenBytes);
  CHECK(token_in(file(kToken, fs::perms(0440))) == kToken);
  fs::create_symlink(file(kToken), folder.dir / "link");
  CHECK(token_in((folder.dir / "link").string()) == kToken);
}

TEST_CASE_METHOD(TokenFileTest, "token file: an unusable token is refused, and not shown",
                 "[unit][rendezvous]") {
  CHECK_THAT(reason(file("")), Contains("empty"));
  CHECK_THAT(reason(file(" \n\n")), Contains("empty"));
  CHECK_THAT(reason(file("0123456789abcde\n")), Contains("has 15 characters, fewer than 16"));
  for (const std::string& bad :
       {kToken + " " + kToken, kToken + '\0' + kToken, kToken + "\xc3\xa9"}) {
    const std::string said = reason(file(bad));
    CHECK_THAT(said, Contains("one word of printable ASCII"));
    CHECK_THAT(said, Contains("openssl rand -hex 32"));
    CHECK_THAT(said, !Contains(kToken));
  }
  CHECK_THAT(reason(file(std::string(kMaxTokenBytes + 1, 'x'))), Contains("longer than 4096"));
}

TEST_CASE_METHOD(TokenFileTest, "token file: a file that other users can read or change is refused",
                 "[unit][rendezvous]") {
  CHECK_THAT(reason(file(kToken, fs::perms(0604))), Contains("chmod 600"));
  CHECK_THAT(reason(file(kToken, fs::perms(0644))), Contains("every user of this machine"));
  CHECK_THAT(reason(file(kToken, fs::perms(0602))), Contains("may change it"));
  CHECK_THAT(reason(file(kToken, fs::perms(0620))), Contains("may change it"));
}

TEST_CASE_METHOD(TokenFileTest, "token file: only a regular file is read", "[unit][rendezvous]") {
  CHECK_THAT(reason((folder.dir / "missing").string()), Contains("No such file"));
  CHECK_THAT(reason(folder.dir.string()), Contains("not a regular file"));
  const std::string fifo = (folder.dir / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(reason(fifo), Contains("not a regular file"));  // Opening does not wait for a writer.
}

TEST_CASE_METHOD(TokenFileTest, "token file: a service manager's credential is found",
                 "[unit][rendezvous]") {
  ::unsetenv("CREDENTIALS_DIRECTORY");
  CHECK_FALSE(credential_token_file());
  ::setenv("CREDENTIALS_DIRECTORY", folder.dir.c_str(), 1);
  CHECK_FALSE(credential_token_file());
  std::ofstream(folder.dir / "rdzv-token") << kToken;
  CHECK(credential_token_file() == (folder.dir / "rdzv-token").string());
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

TEST_CASE_METHOD(TokenFileTest, "token: OpenSSL's primitives", "[unit][rendezvous]") {
  const auto none = load_token("");
  REQUIRE(none.has_value());
  CHECK(*none == nullptr);
  CHECK_THAT(load_token("/nowhere").error().reason, Contains("/nowhere"));
  const auto made = make_token_crypto("Jefe");  // RFC 4231, test case 2.
#ifdef MUSTER_OPENSSL
  REQUIRE(made.has_value());
  const TokenCrypto& crypto = **made;
  constexpr std::array<unsigned char, 8> kBegins = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e};
  const std::string mac = crypto.mac("what do ya want for nothing?");
  REQUIRE(mac.size() == 32);
  CHECK(mac.substr(0, 8) == std::string(kBegins.begin(), kBegins.end()));
  CHECK(crypto.nonce().size() == TokenCrypto::kNonceBytes);
  CHECK(crypto.nonce() != crypto.nonce());
  CHECK(crypto.equal(mac, mac));
  CHECK_FALSE(crypto.equal(mac, mac.substr(1)));
  CHECK_FALSE(crypto.equal(mac, std::string(32, 'x')));
#else
  CHECK_THAT(made.error().reason, Contains("MUSTER_OPENSSL=OFF"));
#endif
}

}  // namespace
}  // namespace muster::testing
