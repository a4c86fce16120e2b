// The certificates of tests/support/certificates.py, created for each test.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "rendezvous/tls/tls_context.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {

struct Certificates {
  Certificates() { make(""); }
  /// Creates the certificates for tests of names.
  void make_named() { make(" named"); }
  std::string file(const std::string& name) const { return (folder.dir / name).string(); }
  /// An empty name leaves the file out.
  TlsFiles files(const std::string& name, const std::string& ca) const {
    TlsFiles files;
    if (!name.empty()) files.certificate = file(name + ".pem"), files.key = file(name + ".key");
    if (!ca.empty()) files.ca = file(ca + ".pem");
    return files;
  }

  TempFolder folder;

 private:
  void make(const std::string& what) {
    const std::string command =
        std::string(MUSTER_PYTHON " " MUSTER_CERTIFICATES " ") + folder.dir.string() + what;
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  }
};

}  // namespace muster::testing
