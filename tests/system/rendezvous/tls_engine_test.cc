// Both ends of a TLS connection in memory: accepted connections, and the reasons of refused ones.

#include "rendezvous/tls/tls_engine.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/access/tls_allow.h"
#include "rendezvous/tls/tls_context.h"
#include "tests/support/certificates.h"

namespace muster {
namespace {

using State = TlsEngine::State;
using Kind = TlsFailure::Kind;

/// The plain bytes that an engine has decrypted, up to 1 MiB.
std::string read_all(TlsEngine& engine) {
  std::string text;
  std::array<char, 5000> piece;
  while (text.size() < (1U << 20)) {
    const std::size_t got = engine.read(piece.data(), piece.size());
    if (got == 0) break;
    text.append(piece.data(), got);
  }
  return text;
}

struct Ends {
  testing::Certificates certificates;
  SharedTlsContext server_context;
  SharedTlsContext client_context;
  std::unique_ptr<TlsEngine> server;
  std::unique_ptr<TlsEngine> client;
  std::string to_server;  // The plain bytes that the server has received.
  std::string to_client;

  void begin(const TlsFiles& of_server, const TlsFiles& of_client,
             const std::string& host = "localhost") {
    const auto for_server = make_tls_context(TlsSide::Server, of_server);
    const auto for_client = make_tls_context(TlsSide::Client, of_client);
    REQUIRE(for_server.has_value());
    REQUIRE(for_client.has_value());
    server.reset();  // An engine must not outlive its context.
    client.reset();
    server_context = *for_server;
    client_context = *for_client;
    server = server_context->new_engine("");
    client = client_context->new_engine(host);
  }
  void begin() { begin(certificates.files("server", ""), certificates.files("", "ca")); }
  /// Moves bytes between both ends, in pieces of this size, until no end sends any more.
  void exchange(std::size_t piece_bytes = 100'000) {
    for (bool moved = true; moved;) {
      moved = carry(*client, *server, to_server, piece_bytes);
      moved = carry(*server, *client, to_client, piece_bytes) || moved;
    }
  }
  static bool carry(TlsEngine& from, TlsEngine& to, std::string& text, std::size_t piece_bytes) {
    const std::string bytes = from.take_outgoing();
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
      to.receive(std::string_view(bytes).substr(at, piece_bytes));
      text += read_all(to);
    }
    return !bytes.empty();
  }
};

std::string refusal(const boost::system::result<SharedTlsContext, TlsError>& made) {
  REQUIRE(made.has_error());
  return made.error().reason;
}

using Catch::Matchers::Contains;

TEST_CASE_METHOD(Ends, "tls: bytes go both ways, in pieces of any size", "[unit][tls]") {
  const std::size_t piece = GENERATE(std::size_t{1}, std::size_t{7}, std::size_t{100'000});
  begin();
  exchange(piece);
  REQUIRE(client->state() == State::Open);
  REQUIRE(server->state() == State::Open);
  const std::string large(piece == 1 ? 20'000 : 300'000, 'x');
  client->write(large);
  server->write("welcome");
  exchange(piece);
  CHECK(to_server == large);
  CHECK(to_client == "welcome");
  client->close();
  exchange(piece);
  CHECK(server->state() == State::Ended);
  CHECK(server->failure().kind == Kind::None);
}

TEST_CASE_METHOD(Ends, "tls: the text is not readable on the wire", "[unit][tls]") {
  begin();
  exchange();
  client->write("the rendezvous token");
  CHECK(client->take_outgoing().find("token") == std::string::npos);
}

TEST_CASE_METHOD(Ends, "tls: the host is known by name and by address", "[unit][tls]") {
  const std::string host = GENERATE("localhost", "127.0.0.1", "::1");
  begin(certificates.files("server", ""), certificates.files("", "ca"), host);
  exchange();
  CHECK(client->state() == State::Open);
}

TEST_CASE_METHOD(Ends, "tls: a wrong certificate of a server is refused with the reason",
                 "[unit][tls]") {
  struct Case {
    std::string server;
    std::string ca;
    std::string host;
    std::string reason;
  };
  const auto wrong = GENERATE(
      Case{"strange", "ca", "localhost", "not signed by this side's CA"},
      Case{"server", "stranger", "localhost", "not signed by this side's CA"},
      Case{"expired", "ca", "localhost", "has expired"},
      Case{"elsewhere", "ca", "localhost", "its certificate is not for localhost"},
      Case{"elsewhere", "ca", "127.0.0.1", "its certificate is not for 127.0.0.1"},
      Case{"server", "ca", "node17.example.org", "its certificate is not for node17.example.org"});
  INFO(wrong.server << " for " << wrong.host);
  begin(certificates.files(wrong.server, ""), certificates.files("", wrong.ca), wrong.host);
  exchange();
  CHECK(client->state() == State::Failed);
  CHECK(client->failure().kind == Kind::Refused);
  CHECK_THAT(client->failure().reason, Contains(wrong.reason));
  CHECK(server->state() == State::Failed);
  CHECK(server->failure().kind == Kind::Refused);
  CHECK_THAT(server->failure().reason, Contains("alert") || Contains("does not accept"));
}

TEST_CASE_METHOD(Ends, "tls: a server with a CA wants a certificate of the client", "[unit][tls]") {
  begin(certificates.files("server", "ca"), certificates.files("client", "ca"));
  CHECK(server_context->asks_certificate());
  exchange();
  CHECK(server->state() == State::Open);
  client->write("hello");
  exchange();
  CHECK(to_server == "hello");
}

TEST_CASE_METHOD(Ends, "tls: a client without a certificate learns that the server asks for one",
                 "[unit][tls]") {
  const std::string shown = GENERATE("", "strange", "expired");
  INFO(shown);
  begin(certificates.files("server", "ca"), certificates.files(shown, "ca"));
  exchange();
  CHECK(server->state() == State::Failed);
  // For the client, the handshake is done before the server has checked the certificate.
  exchange();
  CHECK(read_all(*client).empty());
  CHECK(client->failure().kind == Kind::Refused);
  const std::string& said = client->failure().reason;
  const std::string& seen = server->failure().reason;
  if (shown.empty()) {
    CHECK_THAT(said, Contains("it asks for a certificate of this side"));
    CHECK_THAT(seen, Contains("shows no certificate"));
  } else {
    CHECK_THAT(said, Contains("does not accept this side's certificate"));
    CHECK_THAT(seen, Contains(shown == "strange" ? "not signed by this side's CA" : "has expired"));
  }
}

TEST_CASE_METHOD(Ends, "tls: a client is known by the DNS names of its verified certificate",
                 "[unit][tls]") {
  using Names = std::vector<std::string>;
  certificates.make_named();
  const auto names_of = [this](const std::string& shown, const std::string& server_ca = "ca") {
    begin(certificates.files("server", server_ca), certificates.files(shown, "ca"));
    CHECK(server->peer_names().empty());  // The client has not sent a certificate yet.
    exchange();
    CHECK(server->state() == State::Open);
    return server->peer_names();
  };
  // Addresses, URIs and mail addresses are left out. Names are in lower case.
  CHECK(names_of("named") == Names{"node1.example.org", "team-a", "*.lab.org"});
  // The common name does not count.
  CHECK(names_of("nameless").empty());
  // A name with a zero byte is not cut there. Names with bytes that a DNS name cannot have are left
  // out.
  CHECK(names_of("odd") == Names{"good"});
  const Names many = names_of("many");
  REQUIRE(many.size() == kMaxPeerNames);
  CHECK(many.front() == "name0");
  CHECK(many.back() == "name63");
  // A server that does not ask for a certificate has verified none.
  CHECK(names_of("named", "").empty());
  CHECK(client->peer_names() == Names{"localhost"});
}

TEST_CASE_METHOD(Ends, "tls: a certificate that is refused has no names", "[unit][tls]") {
  begin(certificates.files("server", "ca"), certificates.files("strange", "ca"));
  exchange();
  CHECK(server->state() == State::Failed);
  CHECK(server->peer_names().empty());
}

TEST_CASE_METHOD(Ends, "tls: garbage, records that are too large and other protocols are refused",
                 "[unit][tls]") {
  begin();
  const std::string text = GENERATE(
      std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0'), std::string(64, '\xff'),
      // A handshake record that announces 65,535 bytes, and one of TLS 1.0.
      std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, 'a'),
      std::string("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9));
  server->receive(text);
  CHECK(read_all(*server).empty());
  CHECK(server->state() == State::Failed);
  CHECK(server->failure().kind == Kind::Refused);
  CHECK_THAT(server->failure().reason, Contains("no TLS 1.3 handshake"));
  // Later bytes change nothing.
  server->receive(text);
  CHECK(read_all(*server).empty());
}

TEST_CASE_METHOD(Ends, "tls: garbage within a connection ends it", "[unit][tls]") {
  begin();
  exchange();
  const std::string text = GENERATE(
      std::string("\x17\x03\x03\x00\x40", 5) + std::string(64, 'a'),
      std::string("\x17\x03\x03\xff\xff", 5) + std::string(70'000, 'a'), std::string(100, 'x'));
  server->receive(text);
  CHECK(read_all(*server).empty());
  CHECK(server->failure().kind == Kind::Refused);
}

TEST_CASE_METHOD(Ends, "tls: a connection that is cut off does not count as ended in order",
                 "[unit][tls]") {
  begin();
  SECTION("in the handshake") {
    server->receive(client->take_outgoing().substr(0, 100));
    CHECK(read_all(*server).empty());
    server->end_of_input();
    CHECK_THAT(server->failure().reason, Contains("during the handshake"));
  }
  SECTION("in the middle of a record") {
    exchange();
    client->write("a message");
    server->receive(client->take_outgoing().substr(0, 10));
    CHECK(read_all(*server).empty());
    server->end_of_input();
  }
  SECTION("between two records") {
    exchange();
    server->end_of_input();
  }
  CHECK(server->state() == State::Failed);
  CHECK(server->failure().kind == Kind::Lost);
}

TEST_CASE_METHOD(Ends, "tls: unusable files are refused with a remedy", "[unit][tls]") {
  const auto serve = [](const TlsFiles& with) { return make_tls_context(TlsSide::Server, with); };
  const TlsFiles good = certificates.files("server", "ca");
  REQUIRE(serve(good).has_value());
  TlsFiles files = good;
  files.key.clear();
  CHECK_THAT(refusal(serve(files)), Contains("a certificate needs its key"));
  files = good;
  files.key = certificates.file("client.key");
  CHECK_THAT(refusal(serve(files)), Contains("not the key of"));
  files.key = certificates.file("other.key");
  std::ofstream(files.key) << "no key";
  std::filesystem::permissions(files.key, std::filesystem::perms(0600));
  CHECK_THAT(refusal(serve(files)), Contains("holds no key"));
  files = good;
  files.certificate = certificates.file("missing.pem");
  CHECK_THAT(refusal(serve(files)), Contains("missing.pem: No such file"));
  files = good;
  files.ca = certificates.file("server.key");
  CHECK_THAT(refusal(serve(files)), Contains("the CA file"));
  files.ca = certificates.folder.dir.string();
  CHECK_THAT(refusal(serve(files)), Contains("no regular file"));
  std::filesystem::permissions(good.key, std::filesystem::perms(0644));
  CHECK_THAT(refusal(serve(good)), Contains("every user of this machine may read it"));
  CHECK_THAT(refusal(make_tls_context(TlsSide::Client, {})), Contains("pose as the server"));
  CHECK_THAT(refusal(serve({.ca = good.ca})), Contains("a server needs a certificate"));
}

TEST_CASE_METHOD(Ends, "tls: a key with a passphrase is refused, and nobody is asked for it",
                 "[unit][tls]") {
  TlsFiles files = certificates.files("server", "");
  const std::string locked = certificates.file("locked.key");
  const std::string command = "openssl ec -aes256 -passout pass:secret -in " + files.key +
                              " -out " + locked + " 2>/dev/null";
  REQUIRE(std::system(command.c_str()) == 0);
  std::filesystem::permissions(locked, std::filesystem::perms(0600));
  files.key = locked;
  CHECK_THAT(refusal(make_tls_context(TlsSide::Server, files)), Contains("needs no passphrase"));
}

}  // namespace
}  // namespace muster
