// The credentials of this process for an etcd that asks for a user and a password, or for a
// certificate.
//
// The password comes from a file or from the variables of etcd's own tools. It is never on a
// command line and never in a log.
#pragma once

#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/tls/tls_context.h"

namespace muster {

struct EtcdLogin {
  std::string user;  // Empty: no user is sent to etcd.
  std::string password;
  std::string password_file = {};  // The file with the password, to read it again. Empty: none.
};

struct EtcdLoginError {
  std::string reason;  // The error, and what to do. Never contains the password.
};

inline constexpr std::size_t kMaxEtcdUserBytes = 256;
inline constexpr std::size_t kMaxEtcdPasswordBytes = 4096;

/// `user` and `password_file` are the values of options, or empty. If they are empty, the variables
/// ETCDCTL_USER (USER or USER:PASSWORD) and ETCDCTL_PASSWORD are used. `file_option` is the name of
/// the option for the file, for errors. If no user is given anywhere, the login is empty.
boost::system::result<EtcdLogin, EtcdLoginError> load_etcd_login(const std::string& user,
                                                                 const std::string& password_file,
                                                                 std::string_view file_option);

/// `given` has the files that options name. Files that are empty are taken from the variables of
/// etcd's own tools: ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY.
TlsFiles etcd_tls_files(TlsFiles given);

}  // namespace muster
