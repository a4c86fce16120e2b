// TlsEngine with libssl and two memory BIOs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/tls/openssl_library.h"
#include "rendezvous/tls/tls_context.h"

namespace muster {

class OpensslEngine final : public TlsEngine {
 public:
  /// Messages of TLS itself that a peer may send after the handshake: this many, and one more for
  /// each kBytesPerMessage bytes that it has sent. Each costs far more work than its 27 bytes show.
  static constexpr std::uint64_t kFreeMessages = 16;
  static constexpr std::uint64_t kBytesPerMessage = 64 << 10;
  /// OpenSSL's answers to such messages that the peer has not read yet.
  static constexpr std::size_t kMaxAnswerBytes = 4096;

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
  static void on_message(int sent, int version, int type, const void* message, std::size_t size,
                         SSL* ssl, void* engine);
  void count_message();
  std::size_t outgoing_bytes() const;
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
  std::uint64_t received_bytes_ = 0;
  std::uint64_t messages_ = 0;  // Messages of TLS itself since the handshake.
  bool too_many_messages_ = false;
  std::size_t answer_bytes_ = 0;  // OpenSSL's answers since the last take_outgoing().
};

}  // namespace muster
