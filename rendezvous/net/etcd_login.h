// Who this process is to an etcd that asks for a user and a password, or for a certificate.
//
// The password comes from a file or from the variables of etcd's own tools; it is never on a
// command line and never in a log.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_context.h"

namespace muster {

struct EtcdLogin {
  std::string user;  // Empty: etcd asks nobody.
  std::string password;
};

struct EtcdLoginError {
  std::string reason;  // What is wrong, and what to do; never the password.
};

inline constexpr std::size_t kMostEtcdUserBytes = 256;
inline constexpr std::size_t kMostEtcdPasswordBytes = 4096;

/// `user`: as given by an option, or empty. `password_file`: the same; then it is used. Otherwise
/// the variables count: ETCDCTL_USER, which is USER or USER:PASSWORD, and ETCDCTL_PASSWORD.
/// `file_option` names the option for the file, for errors. No user anywhere: none is wanted.
boost::system::result<EtcdLogin, EtcdLoginError> load_etcd_login(const std::string& user,
                                                                 const std::string& password_file,
                                                                 std::string_view file_option);

/// `given`: as options name the files. Those that are empty are taken from the variables of etcd's
/// own tools: ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY.
TlsFiles etcd_tls_files(TlsFiles given);

}  // namespace muster
