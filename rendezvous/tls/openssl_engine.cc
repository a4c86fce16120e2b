#include "rendezvous/tls/openssl_engine.h"

#include <algorithm>
#include <utility>

#include <climits>

#include "base/check.h"
#include "rendezvous/access/tls_allow.h"

namespace muster {

namespace {

int to_int(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, INT_MAX));
}

}  // namespace

OpensslEngine::OpensslEngine(const OpensslLibrary& library, SSL_CTX* context, TlsSide side,
                             const std::string& host)
    : library_(library),
      side_(side),
      host_(host),
      ssl_(library.ssl_new(context)),
      incoming_(library.bio_new(library.bio_s_mem())),
      outgoing_(library.bio_new(library.bio_s_mem())) {
  // These calls fail only if there is no memory. Then a std::string would fail, too.
  MUSTER_CHECK(ssl_ != nullptr && incoming_ != nullptr && outgoing_ != nullptr);
  library_.set_bio(ssl_, incoming_, outgoing_);
  library_.set_msg_callback(ssl_, on_message);
  library_.ssl_ctrl(ssl_, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, this);
  if (side_ == TlsSide::Server) {
    library_.set_accept_state(ssl_);
    return;
  }
  library_.set_connect_state(ssl_);
  set_expected_host();
  continue_handshake();  // The client sends the first message.
}

OpensslEngine::~OpensslEngine() {
  library_.ssl_free(ssl_);
}

void OpensslEngine::set_expected_host() {
  if (library_.param_set1_ip(library_.get0_param(ssl_), host_.c_str()) == 1) return;
  // Without an expected name, the certificate of any host would be accepted.
  MUSTER_CHECK(!host_.empty() && library_.set1_host(ssl_, host_.c_str()) == 1);
  library_.ssl_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, host_.data());
}

void OpensslEngine::receive(std::string_view ciphertext) {
  if (state_ == State::Failed) return;
  const int written = library_.bio_write(incoming_, ciphertext.data(), to_int(ciphertext.size()));
  MUSTER_CHECK(written == to_int(ciphertext.size()));  // A memory BIO accepts all bytes.
  received_bytes_ += ciphertext.size();
}

/// Called by OpenSSL for each record and each message, before it handles the message.
void OpensslEngine::on_message(int sent, int, int type, const void*, std::size_t, SSL*,
                               void* engine) {
  if (sent == 0 && type == SSL3_RT_HANDSHAKE) static_cast<OpensslEngine*>(engine)->count_message();
}

/// After too many messages (key updates, above all), drops the bytes that have come: SSL_read()
/// would handle all messages among them before it returns.
void OpensslEngine::count_message() {
  if (state_ == State::Handshake) return;  // OpenSSL bounds the messages of a handshake.
  if (++messages_ <= kFreeMessages + received_bytes_ / kBytesPerMessage) return;
  too_many_messages_ = true;
  library_.bio_ctrl(incoming_, BIO_CTRL_RESET, 0, nullptr);
}

void OpensslEngine::end_of_input() {
  if (state_ == State::Handshake)
    return fail_with(TlsFailure::Kind::Lost, "it has closed the connection during the handshake");
  // An attacker between both sides may have cut off the peer's data.
  if (state_ == State::Open)
    fail_with(TlsFailure::Kind::Lost, "the connection ended without the end that TLS announces");
}

void OpensslEngine::continue_handshake() {
  library_.err_clear();
  const int result = library_.do_handshake(ssl_);
  if (result == 1)
    state_ = State::Open;
  else
    fail(result);
}

std::size_t OpensslEngine::read(char* to, std::size_t most) {
  if (state_ == State::Handshake) continue_handshake();
  if (state_ != State::Open) return 0;
  const std::size_t before = outgoing_bytes();
  library_.err_clear();
  const int got = library_.read(ssl_, to, to_int(most));
  answer_bytes_ += outgoing_bytes() - before;
  if (too_many_messages_) {
    fail_with(TlsFailure::Kind::Refused, "it sends key updates or tickets without data, on and on");
    return 0;
  }
  if (answer_bytes_ > kMaxAnswerBytes) {
    fail_with(TlsFailure::Kind::Refused, "it asks for key updates, and reads no answers to them");
    return 0;
  }
  if (got > 0) return static_cast<std::size_t>(got);
  fail(got);
  return 0;
}

void OpensslEngine::write(std::string_view plaintext) {
  MUSTER_CHECK(state_ != State::Handshake);
  if (state_ == State::Failed || plaintext.empty()) return;
  library_.err_clear();
  const int written = library_.write(ssl_, plaintext.data(), to_int(plaintext.size()));
  if (written != to_int(plaintext.size())) fail(written);
}

void OpensslEngine::close() {
  if (state_ != State::Open && state_ != State::Ended) return;
  library_.err_clear();
  library_.shutdown(ssl_);
}

std::size_t OpensslEngine::outgoing_bytes() const {
  const long pending = library_.bio_ctrl(outgoing_, BIO_CTRL_PENDING, 0, nullptr);
  return static_cast<std::size_t>(std::max(pending, 0L));
}

std::string OpensslEngine::take_outgoing() {
  std::string bytes(outgoing_bytes(), '\0');
  answer_bytes_ = 0;
  if (!bytes.empty()) library_.bio_read(outgoing_, bytes.data(), to_int(bytes.size()));
  return bytes;
}

std::vector<std::string> OpensslEngine::peer_names() const {
  std::vector<std::string> names;
  if (state_ == State::Handshake || library_.get_verify_result(ssl_) != X509_V_OK) return names;
  const auto* chain = reinterpret_cast<const OPENSSL_STACK*>(library_.get0_verified_chain(ssl_));
  if (chain == nullptr || library_.sk_num(chain) < 1) return names;  // The peer has no certificate.
  const auto* certificate = static_cast<const X509*>(library_.sk_value(chain, 0));
  // Null also if the certificate has two lists of alternative names.
  auto* list = static_cast<GENERAL_NAMES*>(
      library_.get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (list == nullptr) return names;
  const auto* stack = reinterpret_cast<const OPENSSL_STACK*>(list);
  for (int i = 0; i < library_.sk_num(stack) && names.size() < kMaxPeerNames; ++i) {
    const auto* name = static_cast<const GENERAL_NAME*>(library_.sk_value(stack, i));
    if (name->type != GEN_DNS) continue;
    // The length is used, so that a zero byte in the middle does not end the name.
    const auto* text = reinterpret_cast<const char*>(library_.asn1_string_data(name->d.dNSName));
    const int length = library_.asn1_string_length(name->d.dNSName);
    auto dns_name = to_dns_name({text, static_cast<std::size_t>(std::max(length, 0))});
    if (dns_name) names.push_back(*std::move(dns_name));
  }
  library_.general_names_free(list);
  return names;
}

/// Handles the result of a call that did not complete. This may be an error, the end of the peer's
/// data, or a call that needs more data.
void OpensslEngine::fail(int result) {
  const int error = library_.get_error(ssl_, result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
  if (error == SSL_ERROR_ZERO_RETURN) {
    state_ = State::Ended;
    return;
  }
  fail_with(TlsFailure::Kind::Refused, refusal_text());
}

void OpensslEngine::fail_with(TlsFailure::Kind kind, std::string reason) {
  if (state_ == State::Failed) return;
  state_ = State::Failed;
  failure_ = {kind, std::move(reason)};
}

std::string OpensslEngine::refusal_text() {
  const unsigned long code = library_.err_get();
  const char* known = library_.err_reason(code);
  const std::string text = known != nullptr ? known : "error " + std::to_string(code);
  const auto says = [&text](const char* what) { return text.find(what) != std::string::npos; };
  if (says("alert certificate required"))
    return "it asks for a certificate of this side, which was started without one";
  if (says("alert unknown ca"))
    return "it does not accept this side's certificate: its CA has not signed it";
  if (says("alert certificate expired"))
    return "it does not accept this side's certificate: it has expired";
  // Servers written in Go, such as etcd, send this alert for all of these reasons.
  if (side_ == TlsSide::Client && says("alert bad certificate"))
    return "it has got no certificate of this side, or does not accept it: it may have expired, or "
           "its CA has not signed it";
  if (says("alert")) return "it refuses this side's certificate or handshake (" + text + ")";
  if (says("did not return a certificate")) return "it shows no certificate, and must have one";
  if (const long verified = library_.get_verify_result(ssl_); verified != X509_V_OK)
    return certificate_trouble(verified);
  if (state_ == State::Handshake) return "what it sends is no TLS 1.3 handshake (" + text + ")";
  return "what it sends is no TLS (" + text + ")";
}

std::string OpensslEngine::certificate_trouble(long verify_result) const {
  switch (verify_result) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is not for " + host_ +
             ": the name or address must be among the certificate's alternative names";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "its certificate, or that of its CA, has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate is not valid yet: compare the clocks of both machines";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return "its certificate is not signed by this side's CA";
    default:
      return std::string("its certificate is not accepted: ") +
             library_.verify_error_string(verify_result);
  }
}

}  // namespace muster
