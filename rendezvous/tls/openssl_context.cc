#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "rendezvous/tls/tls_context.h"
#ifdef MUSTER_OPENSSL
#include "rendezvous/tls/openssl_engine.h"
#endif

namespace muster {

#ifdef MUSTER_OPENSSL
namespace {

constexpr off_t kMaxPemBytes = 1 << 20;

/// Without this callback, OpenSSL would ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

/// Why a file is refused before OpenSSL reads it. Empty: it is not refused.
std::string complaint_of(const std::string& path, bool secret) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return std::strerror(errno);
  if (!S_ISREG(file.st_mode)) return "it is no regular file";
  if (file.st_size > kMaxPemBytes) return "it is larger than any certificate: 1 MiB is the limit";
  if (secret && (file.st_mode & S_IROTH) != 0)
    return "every user of this machine may read it: `chmod 600 " + path +
           "` takes that back (or 640, for a group)";
  return {};
}

class OpensslContext final : public TlsContext {
 public:
  OpensslContext(OpensslLibrary library, TlsSide side)
      : library_(library),
        side_(side),
        context_(library_.ctx_new(side == TlsSide::Server ? library_.server_method()
                                                          : library_.client_method())) {}
  ~OpensslContext() override {
    if (context_ != nullptr) library_.ctx_free(context_);
  }

  /// Returns an empty text, or why the files are refused.
  std::string load(const TlsFiles& files);

  std::unique_ptr<TlsEngine> new_engine(const std::string& host) const override {
    return std::make_unique<OpensslEngine>(library_, context_, side_, host);
  }
  TlsSide side() const override { return side_; }
  bool asks_certificate() const override { return asks_certificate_; }

 private:
  std::string set_up();
  std::string load_certificate(const TlsFiles& files);
  std::string load_ca(const std::string& path);
  std::string reason() const;

  OpensslLibrary library_;
  TlsSide side_;
  SSL_CTX* context_;
  bool asks_certificate_ = false;
};

std::string OpensslContext::reason() const {
  std::string text;
  // The first error in OpenSSL's queue is the cause. Later ones are the places that noticed it.
  if (const char* known = library_.err_reason(library_.err_get()); known != nullptr) text = known;
  return text.empty() ? "OpenSSL does not say why" : text;
}

std::string OpensslContext::set_up() {
  library_.err_clear();
  if (context_ == nullptr) return "OpenSSL cannot be set up: " + reason();
  if (library_.ctx_ctrl(context_, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1)
    return "this OpenSSL has no TLS 1.3; version 1.1.1 or 3 is needed";
  // No tickets: each connection must check the certificates, and with a ticket it would skip that.
  library_.ctx_set_num_tickets(context_, 0);
  library_.ctx_ctrl(context_, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  // Most connections are idle most of the time. This mode saves 34 KB for each of them.
  library_.ctx_ctrl(context_, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, nullptr);
  library_.ctx_set_default_passwd_cb(context_, no_passphrase);
  return {};
}

std::string OpensslContext::load_certificate(const TlsFiles& files) {
  const auto of_certificate = "the certificate file " + files.certificate + ": ";
  const auto of_key = "the key file " + files.key + ": ";
  if (const auto why = complaint_of(files.certificate, false); !why.empty())
    return of_certificate + why;
  if (const auto why = complaint_of(files.key, true); !why.empty()) return of_key + why;
  if (library_.ctx_use_certificate_chain_file(context_, files.certificate.c_str()) != 1)
    return of_certificate + "it holds no certificate in PEM form (" + reason() + ")";
  if (library_.ctx_use_private_key_file(context_, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return of_key + "it holds no key in PEM form that needs no passphrase, or not the key of " +
           files.certificate + " (" + reason() + ")";
  if (library_.ctx_check_private_key(context_) != 1)
    return of_key + "it is not the key of " + files.certificate;
  return {};
}

std::string OpensslContext::load_ca(const std::string& path) {
  const auto of_ca = "the CA file " + path + ": ";
  if (const auto why = complaint_of(path, false); !why.empty()) return of_ca + why;
  if (library_.ctx_load_verify_locations(context_, path.c_str(), nullptr) != 1)
    return of_ca + "it holds no certificate in PEM form (" + reason() + ")";
  library_.ctx_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  asks_certificate_ = true;
  return {};
}

std::string OpensslContext::load(const TlsFiles& files) {
  std::string wrong = set_up();
  if (wrong.empty() && !files.certificate.empty()) wrong = load_certificate(files);
  if (wrong.empty() && !files.ca.empty()) wrong = load_ca(files.ca);
  return wrong;
}

}  // namespace

boost::system::result<SharedTlsContext, TlsError> make_tls_context(TlsSide side,
                                                                   const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty())
    return TlsError{"a certificate needs its key, and a key its certificate: give both files"};
  if (side == TlsSide::Server && files.certificate.empty())
    return TlsError{"a server needs a certificate and its key: give both files"};
  if (side == TlsSide::Client && files.ca.empty())
    return TlsError{
        "without the CA that must have signed the server's certificate anybody could pose as the "
        "server: give its file"};
  OpensslLibrary library;
  if (const std::string trouble = library.open(); !trouble.empty())
    return TlsError{"TLS needs OpenSSL's libssl, which cannot be loaded (" + trouble +
                    "); install the package libssl3"};
  const auto context = std::make_shared<OpensslContext>(library, side);
  if (std::string wrong = context->load(files); !wrong.empty()) return TlsError{std::move(wrong)};
  return SharedTlsContext(context);
}

#else

boost::system::result<SharedTlsContext, TlsError> make_tls_context(TlsSide, const TlsFiles&) {
  return TlsError{
      "this muster was built without OpenSSL (MUSTER_OPENSSL=OFF), so it cannot use TLS; take a "
      "build that has it"};
}

#endif

}  // namespace muster
