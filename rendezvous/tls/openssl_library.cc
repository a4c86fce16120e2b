#include "rendezvous/tls/openssl_library.h"

#include <dlfcn.h>

#include <array>

#include "base/system/library_function.h"

namespace muster {

namespace {

constexpr std::array<const char*, 2> kSslLibraries = {"libssl.so.3", "libssl.so.1.1"};

}  // namespace

std::string OpensslLibrary::open() {
  void* library = nullptr;
  std::string trouble;
  for (const char* name : kSslLibraries) {
    if (library != nullptr) break;
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) trouble.append(trouble.empty() ? "" : "; ").append(::dlerror());
  }
  if (library == nullptr) return trouble;
  // libssl loads libcrypto, and dlsym() searches both.
  const bool complete =
      find_function(library, "TLS_client_method", client_method) &&
      find_function(library, "TLS_server_method", server_method) &&
      find_function(library, "SSL_CTX_new", ctx_new) &&
      find_function(library, "SSL_CTX_free", ctx_free) &&
      find_function(library, "SSL_CTX_ctrl", ctx_ctrl) &&
      find_function(library, "SSL_CTX_set_num_tickets", ctx_set_num_tickets) &&
      find_function(library, "SSL_CTX_set_default_passwd_cb", ctx_set_default_passwd_cb) &&
      find_function(library, "SSL_CTX_use_certificate_chain_file",
                    ctx_use_certificate_chain_file) &&
      find_function(library, "SSL_CTX_use_PrivateKey_file", ctx_use_private_key_file) &&
      find_function(library, "SSL_CTX_check_private_key", ctx_check_private_key) &&
      find_function(library, "SSL_CTX_load_verify_locations", ctx_load_verify_locations) &&
      find_function(library, "SSL_CTX_set_verify", ctx_set_verify) &&
      find_function(library, "SSL_new", ssl_new) && find_function(library, "SSL_free", ssl_free) &&
      find_function(library, "SSL_ctrl", ssl_ctrl) &&
      find_function(library, "SSL_set_bio", set_bio) &&
      find_function(library, "SSL_set_msg_callback", set_msg_callback) &&
      find_function(library, "SSL_set_connect_state", set_connect_state) &&
      find_function(library, "SSL_set_accept_state", set_accept_state) &&
      find_function(library, "SSL_get0_param", get0_param) &&
      find_function(library, "SSL_set1_host", set1_host) &&
      find_function(library, "SSL_do_handshake", do_handshake) &&
      find_function(library, "SSL_read", read) && find_function(library, "SSL_write", write) &&
      find_function(library, "SSL_shutdown", shutdown) &&
      find_function(library, "SSL_get_error", get_error) &&
      find_function(library, "SSL_get_verify_result", get_verify_result) &&
      find_function(library, "SSL_get0_verified_chain", get0_verified_chain) &&
      find_function(library, "OPENSSL_sk_num", sk_num) &&
      find_function(library, "OPENSSL_sk_value", sk_value) &&
      find_function(library, "X509_get_ext_d2i", get_ext_d2i) &&
      find_function(library, "GENERAL_NAMES_free", general_names_free) &&
      find_function(library, "ASN1_STRING_get0_data", asn1_string_data) &&
      find_function(library, "ASN1_STRING_length", asn1_string_length) &&
      find_function(library, "X509_VERIFY_PARAM_set1_ip_asc", param_set1_ip) &&
      find_function(library, "X509_verify_cert_error_string", verify_error_string) &&
      find_function(library, "BIO_new", bio_new) &&
      find_function(library, "BIO_s_mem", bio_s_mem) &&
      find_function(library, "BIO_ctrl", bio_ctrl) &&
      find_function(library, "BIO_read", bio_read) &&
      find_function(library, "BIO_write", bio_write) &&
      find_function(library, "ERR_get_error", err_get) &&
      find_function(library, "ERR_clear_error", err_clear) &&
      find_function(library, "ERR_reason_error_string", err_reason);
  return complete ? std::string() : ::dlerror();
}

}  // namespace muster
