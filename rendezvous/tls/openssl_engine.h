// TlsEngine with libssl and two memory BIOs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/tls/openssl_library.h"
#include "rendezvous/tls/tls_context.h"

namespace muster {

class OpensslEngine final : public TlsEngine {
 public:
  /// `library` must outlive the engine. For `host` see TlsContext::new_engine().
  OpensslEngine(const OpensslLibrary& library, SSL_CTX* context, TlsSide side,
                const std::string& host);
  ~OpensslEngine() override;

  void receive(std::string_view ciphertext) override;
  void end_of_input() override;
  std::size_t read(char* to, std::size_t most) override;
  void write(std::string_view plaintext) override;
  void close() override;
  std::string take_outgoing() override;
  State state() const override { return state_; }
  const TlsFailure& failure() const override { return failure_; }
  std::vector<std::string> peer_names() const override;

 private:
  void continue_handshake();
  void set_expected_host();
  void fail(int result);
  void fail_with(TlsFailure::Kind kind, std::string reason);
  std::string refusal_text();
  std::string certificate_trouble(long verify_result) const;

  const OpensslLibrary& library_;
  TlsSide side_;
  std::string host_;
  SSL* ssl_;  // Owns both BIOs.
  BIO* incoming_;
  BIO* outgoing_;
  State state_ = State::Handshake;
  TlsFailure failure_;
};

}  // namespace muster
