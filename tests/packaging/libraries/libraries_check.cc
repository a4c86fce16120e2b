// Uses what muster needs of SQLite and OpenSSL: a journal that a second connection reads, an HMAC,
// and a TLS handshake with a key and a certificate that it makes. Exits with 0 if all of it works.
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sqlite3.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::exit(1);
}

using Database = std::unique_ptr<sqlite3, decltype(&sqlite3_close)>;

Database open_database(const std::string& path) {
  sqlite3* database = nullptr;
  require(sqlite3_open(path.c_str(), &database) == SQLITE_OK, "open a database");
  return {database, &sqlite3_close};
}

void check_sqlite(const std::string& path) {
  const Database writer = open_database(path);
  const char* const kStatements =
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
      "CREATE TABLE rounds (run TEXT PRIMARY KEY, generation INTEGER);"
      "BEGIN IMMEDIATE; INSERT INTO rounds VALUES ('a', 41);"
      "UPDATE rounds SET generation = generation + 1; COMMIT;";
  require(sqlite3_exec(writer.get(), kStatements, nullptr, nullptr, nullptr) == SQLITE_OK,
          "write to the database");
  const Database reader = open_database(path);
  sqlite3_stmt* statement = nullptr;
  require(sqlite3_prepare_v2(reader.get(), "SELECT generation FROM rounds WHERE run = 'a'", -1,
                             &statement, nullptr) == SQLITE_OK,
          "prepare a statement");
  require(sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int(statement, 0) == 42,
          "read what was committed");
  sqlite3_finalize(statement);
}

// RFC 4231, test case 2.
void check_hmac() {
  const std::string key = "Jefe";
  const std::string text = "what do ya want for nothing?";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  require(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
               &length) != nullptr,
          "compute an HMAC");
  require(length == 32 && digest[0] == 0x5b && digest[1] == 0xdc && digest[31] == 0x43,
          "the HMAC of RFC 4231");
}

std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> server_context() {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  require(key != nullptr, "make a key");
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  require(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "sign a certificate");
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_server_method()),
                                                            &SSL_CTX_free);
  require(context != nullptr && SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1,
          "use the certificate");
  return context;
}

void check_tls() {
  const auto server_side = server_context();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> client_side(
      SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> server(SSL_new(server_side.get()), &SSL_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(client_side.get()), &SSL_free);
  BIO* server_end = nullptr;
  BIO* client_end = nullptr;
  require(BIO_new_bio_pair(&server_end, 0, &client_end, 0) == 1, "connect two ends");
  SSL_set_bio(server.get(), server_end, server_end);
  SSL_set_bio(client.get(), client_end, client_end);
  SSL_set_accept_state(server.get());
  SSL_set_connect_state(client.get());
  for (int turn = 0; turn < 10; ++turn) {
    SSL_do_handshake(client.get());
    SSL_do_handshake(server.get());
  }
  require(SSL_is_init_finished(client.get()) == 1 && SSL_is_init_finished(server.get()) == 1,
          "a TLS handshake");
  std::array<char, 8> answer{};
  require(SSL_write(client.get(), "hello", 5) == 5 &&
              SSL_read(server.get(), answer.data(), answer.size()) == 5,
          "send through TLS");
  std::printf("%s\n", SSL_get_version(client.get()));
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 2, "one argument: the path of a database to make");
  std::array<unsigned char, 16> random{};
  require(RAND_bytes(random.data(), random.size()) == 1, "random bytes");
  check_sqlite(argv[1]);
  check_hmac();
  check_tls();
  std::printf("SQLite %s, %s\n", sqlite3_libversion(), OpenSSL_version(OPENSSL_VERSION));
}
