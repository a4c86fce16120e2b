// The functions of OpenSSL's libssl and libcrypto that TLS needs. They are found at run time.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <string>

namespace muster {

/// These functions are the same in OpenSSL 1.1.1 and 3. Many names in OpenSSL's documentation are
/// macros that call these functions.
struct OpensslLibrary {
  /// Loads the library, which stays loaded. Returns an empty text, or why it cannot be used.
  std::string open();

  decltype(&::TLS_client_method) client_method = nullptr;
  decltype(&::TLS_server_method) server_method = nullptr;
  decltype(&::SSL_CTX_new) ctx_new = nullptr;
  decltype(&::SSL_CTX_free) ctx_free = nullptr;
  decltype(&::SSL_CTX_ctrl) ctx_ctrl = nullptr;
  decltype(&::SSL_CTX_set_num_tickets) ctx_set_num_tickets = nullptr;
  decltype(&::SSL_CTX_set_default_passwd_cb) ctx_set_default_passwd_cb = nullptr;
  decltype(&::SSL_CTX_use_certificate_chain_file) ctx_use_certificate_chain_file = nullptr;
  decltype(&::SSL_CTX_use_PrivateKey_file) ctx_use_private_key_file = nullptr;
  decltype(&::SSL_CTX_check_private_key) ctx_check_private_key = nullptr;
  decltype(&::SSL_CTX_load_verify_locations) ctx_load_verify_locations = nullptr;
  decltype(&::SSL_CTX_set_verify) ctx_set_verify = nullptr;
  decltype(&::SSL_new) ssl_new = nullptr;
  decltype(&::SSL_free) ssl_free = nullptr;
  decltype(&::SSL_ctrl) ssl_ctrl = nullptr;
  decltype(&::SSL_set_bio) set_bio = nullptr;
  decltype(&::SSL_set_msg_callback) set_msg_callback = nullptr;
  decltype(&::SSL_set_connect_state) set_connect_state = nullptr;
  decltype(&::SSL_set_accept_state) set_accept_state = nullptr;
  decltype(&::SSL_get0_param) get0_param = nullptr;
  decltype(&::SSL_set1_host) set1_host = nullptr;
  decltype(&::SSL_do_handshake) do_handshake = nullptr;
  decltype(&::SSL_read) read = nullptr;
  decltype(&::SSL_write) write = nullptr;
  decltype(&::SSL_shutdown) shutdown = nullptr;
  decltype(&::SSL_get_error) get_error = nullptr;
  decltype(&::SSL_get_verify_result) get_verify_result = nullptr;
  decltype(&::SSL_get0_verified_chain) get0_verified_chain = nullptr;
  decltype(&::OPENSSL_sk_num) sk_num = nullptr;
  decltype(&::OPENSSL_sk_value) sk_value = nullptr;
  decltype(&::X509_get_ext_d2i) get_ext_d2i = nullptr;
  decltype(&::GENERAL_NAMES_free) general_names_free = nullptr;
  decltype(&::ASN1_STRING_get0_data) asn1_string_data = nullptr;
  decltype(&::ASN1_STRING_length) asn1_string_length = nullptr;
  decltype(&::X509_VERIFY_PARAM_set1_ip_asc) param_set1_ip = nullptr;
  decltype(&::X509_verify_cert_error_string) verify_error_string = nullptr;
  decltype(&::BIO_new) bio_new = nullptr;
  decltype(&::BIO_s_mem) bio_s_mem = nullptr;
  decltype(&::BIO_ctrl) bio_ctrl = nullptr;
  decltype(&::BIO_read) bio_read = nullptr;
  decltype(&::BIO_write) bio_write = nullptr;
  decltype(&::ERR_get_error) err_get = nullptr;
  decltype(&::ERR_clear_error) err_clear = nullptr;
  decltype(&::ERR_reason_error_string) err_reason = nullptr;
};

}  // namespace muster
