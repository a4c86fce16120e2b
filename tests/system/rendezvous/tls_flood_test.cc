// Peers that finish the TLS handshake and then send messages of TLS itself without end.

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "base/system/library_function.h"
#include "rendezvous/tls/openssl_library.h"
#include "rendezvous/tls/tls_context.h"
#include "tests/support/certificates.h"

namespace muster {
namespace {

using State = TlsEngine::State;

/// A client that uses libssl directly, because a TlsEngine never sends key updates.
class RawClient {
 public:
  RawClient() {
    REQUIRE(library_.open().empty());
    REQUIRE(find_key_update());
    context_ = library_.ctx_new(library_.client_method());
    ssl_ = library_.ssl_new(context_);
    incoming_ = library_.bio_new(library_.bio_s_mem());
    outgoing_ = library_.bio_new(library_.bio_s_mem());
    library_.set_bio(ssl_, incoming_, outgoing_);
    library_.set_connect_state(ssl_);
    library_.do_handshake(ssl_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() {
    library_.ssl_free(ssl_);
    library_.ctx_free(context_);
  }

  void receive(const std::string& bytes) {
    if (!bytes.empty()) library_.bio_write(incoming_, bytes.data(), static_cast<int>(bytes.size()));
    library_.do_handshake(ssl_);
  }
  std::string take_outgoing() {
    std::string bytes;
    std::array<char, 65536> piece;
    for (int got = 1; got > 0;) {
      got = library_.bio_read(outgoing_, piece.data(), static_cast<int>(piece.size()));
      if (got > 0) bytes.append(piece.data(), static_cast<std::size_t>(got));
    }
    return bytes;
  }
  /// Asks the server for a key update of its own, too.
  void update_keys() {
    REQUIRE(key_update_(ssl_, SSL_KEY_UPDATE_REQUESTED) == 1);
    REQUIRE(library_.do_handshake(ssl_) == 1);
  }
  void write(const std::string& text) {
    REQUIRE(library_.write(ssl_, text.data(), static_cast<int>(text.size())) ==
            static_cast<int>(text.size()));
  }

 private:
  bool find_key_update() {
    for (const char* name : {"libssl.so.3", "libssl.so.1.1"})
      if (void* loaded = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD))
        return find_function(loaded, "SSL_key_update", key_update_);
    return false;
  }

  OpensslLibrary library_;
  decltype(&::SSL_key_update) key_update_ = nullptr;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  BIO* incoming_ = nullptr;  // Both belong to ssl_.
  BIO* outgoing_ = nullptr;
};

struct Flood {
  testing::Certificates certificates;
  SharedTlsContext context = *make_tls_context(TlsSide::Server, certificates.files("server", ""));
  std::unique_ptr<TlsEngine> server = context->new_engine("");
  RawClient client;

  Flood() {
    for (int i = 0; i < 4 && server->state() == State::Handshake; ++i) {
      server->receive(client.take_outgoing());
      CHECK(read_all() == 0);
      client.receive(server->take_outgoing());
    }
    REQUIRE(server->state() == State::Open);
  }
  /// The number of plain bytes that the server has decrypted.
  std::size_t read_all() {
    std::array<char, 16384> piece;
    std::size_t all = 0;
    while (const std::size_t got = server->read(piece.data(), piece.size()))
      all += got;
    return all;
  }
};

using Catch::Matchers::Contains;

TEST_CASE_METHOD(Flood, "tls: a peer that sends key updates without end is refused at once",
                 "[unit][tls]") {
  for (int i = 0; i < 10'000; ++i)
    client.update_keys();
  const std::string flood = client.take_outgoing();
  // The server's part of the work ends with the first few of the 1,200 updates in this piece.
  server->receive(std::string_view(flood).substr(0, 32'768));
  CHECK(read_all() == 0);
  CHECK(server->state() == State::Failed);
  CHECK(server->failure().kind == TlsFailure::Kind::Refused);
  CHECK_THAT(server->failure().reason, Contains("without data"));
  CHECK(server->take_outgoing().size() < 1'024);
}

TEST_CASE_METHOD(Flood, "tls: key updates among data are answered", "[unit][tls]") {
  const std::string text(65'536, 'x');
  std::size_t answer_bytes = 0;
  for (int i = 0; i < 64; ++i) {
    client.update_keys();
    if (i >= 16) client.write(text);
    server->receive(client.take_outgoing());
    CHECK(read_all() == (i >= 16 ? text.size() : 0));
    REQUIRE(server->state() == State::Open);
    answer_bytes += server->take_outgoing().size();
  }
  CHECK(answer_bytes > 60 * 20);
}

TEST_CASE_METHOD(Flood, "tls: a peer that reads no answer to its key updates is refused",
                 "[unit][tls]") {
  const std::string text(65'536, 'x');
  int updates = 0;
  for (; updates < 400 && server->state() == State::Open; ++updates) {
    client.write(text);
    client.update_keys();
    server->receive(client.take_outgoing());
    read_all();
  }
  CHECK(updates < 200);
  CHECK(server->state() == State::Failed);
  CHECK_THAT(server->failure().reason, Contains("reads no answers"));
  CHECK(server->take_outgoing().size() < 8'192);
}

}  // namespace
}  // namespace muster
