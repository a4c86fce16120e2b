#include "rendezvous/state/etcd/etcd_login.h"

#include <cstdlib>
#include <utility>

#include "rendezvous/access/token_file.h"

namespace muster {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace

boost::system::result<EtcdLogin, EtcdLoginError> load_etcd_login(const std::string& user,
                                                                 const std::string& password_file,
                                                                 std::string_view file_option) {
  EtcdLogin login{.user = user, .password = variable("ETCDCTL_PASSWORD")};
  const std::string given = variable("ETCDCTL_USER");
  const auto colon = given.find(':');
  const std::string given_user = given.substr(0, colon);
  if (login.user.empty()) login.user = given_user;
  if (colon != std::string::npos && login.user == given_user && login.password.empty())
    login.password = given.substr(colon + 1);
  if (login.user.empty()) {
    if (!password_file.empty())
      return EtcdLoginError{std::string(file_option) +
                            " has a password for etcd, but there is no user; name one, or set "
                            "ETCDCTL_USER"};
    return EtcdLogin{};
  }
  if (!password_file.empty()) {
    auto password = read_secret_line(password_file, kMaxEtcdPasswordBytes);
    if (!password) return EtcdLoginError{std::string(file_option) + ": " + password.error().reason};
    login.password = *std::move(password);
    login.password_file = password_file;
  }
  if (login.password.empty())
    return EtcdLoginError{"there is no password for etcd's user " + login.user + ": give " +
                          std::string(file_option) + ", or set ETCDCTL_PASSWORD"};
  if (login.user.size() > kMaxEtcdUserBytes || login.password.size() > kMaxEtcdPasswordBytes)
    return EtcdLoginError{"the user or the password for etcd is too long"};
  return login;
}

TlsFiles etcd_tls_files(TlsFiles given) {
  if (given.ca.empty()) given.ca = variable("ETCDCTL_CACERT");
  if (given.certificate.empty()) given.certificate = variable("ETCDCTL_CERT");
  if (given.key.empty()) given.key = variable("ETCDCTL_KEY");
  return given;
}

}  // namespace muster
