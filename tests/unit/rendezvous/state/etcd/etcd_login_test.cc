#include "rendezvous/state/etcd/etcd_login.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace muster::testing {
namespace {

struct LoginFixture {
  LoginFixture() { clear(); }
  ~LoginFixture() { clear(); }
  static void clear() {
    ::unsetenv("ETCDCTL_USER");
    ::unsetenv("ETCDCTL_PASSWORD");
  }
  std::string file(const std::string& text, mode_t mode = 0600) {
    const std::string path = (folder.dir / "password").string();
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static std::string login(const std::string& user, const std::string& password_file = {}) {
    const auto login = load_etcd_login(user, password_file, "--file");
    return login ? login->user + "|" + login->password : "error: " + login.error().reason;
  }
  TempFolder folder;
};

using Catch::Contains;

TEST_CASE_METHOD(LoginFixture, "etcd login: without a user there is none", "[unit][etcd]") {
  CHECK(login("") == "|");
  ::setenv("ETCDCTL_PASSWORD", "p", 1);
  CHECK(login("") == "|");
}

TEST_CASE_METHOD(LoginFixture, "etcd login: the variables of etcd's own tools", "[unit][etcd]") {
  ::setenv("ETCDCTL_USER", "u:p:q", 1);
  CHECK(login("") == "u|p:q");
  CHECK_THAT(login("other"), Contains("no password for etcd's user other"));
  ::setenv("ETCDCTL_PASSWORD", "r", 1);
  CHECK(login("") == "u|r");
  CHECK(login("other") == "other|r");
}

TEST_CASE_METHOD(LoginFixture, "etcd login: a file goes before the variables", "[unit][etcd]") {
  ::setenv("ETCDCTL_USER", "u:p", 1);
  CHECK(login("", file("from file\nmore\n")) == "u|from file");
  CHECK(login("v", file("x\r\n")) == "v|x");
  CHECK_THAT(login("v", file("\nx")), Contains("--file: the file ") && Contains("is empty"));
  CHECK_THAT(login("v", file(std::string(kMaxEtcdPasswordBytes + 1, 'x'))),
             Contains("longer than"));
  CHECK_THAT(login("v", file("hidden", 0604)), Contains("every user") && !Contains("hidden"));
  CHECK_THAT(login("v", (folder.dir / "none").string()), Contains("No such file"));
  ::unsetenv("ETCDCTL_USER");
  CHECK_THAT(login("", file("x")), Contains("there is no user"));
}

TEST_CASE("etcd login: files for TLS that are not given come from etcd's variables",
          "[unit][etcd]") {
  ::unsetenv("ETCDCTL_CACERT");
  ::unsetenv("ETCDCTL_CERT");
  ::unsetenv("ETCDCTL_KEY");
  CHECK_FALSE(etcd_tls_files({}).any());
  ::setenv("ETCDCTL_CACERT", "their ca", 1);
  ::setenv("ETCDCTL_CERT", "their certificate", 1);
  ::setenv("ETCDCTL_KEY", "their key", 1);
  const TlsFiles files = etcd_tls_files({.ca = "ca"});
  CHECK(files.ca == "ca");
  CHECK(files.certificate == "their certificate");
  CHECK(files.key == "their key");
  ::unsetenv("ETCDCTL_CACERT");
  ::unsetenv("ETCDCTL_CERT");
  ::unsetenv("ETCDCTL_KEY");
}

}  // namespace
}  // namespace muster::testing
