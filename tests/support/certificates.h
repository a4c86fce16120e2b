// Certificates of tests/support/certificates.py, made once for each test.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "rendezvous/tls/tls_context.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {

struct Certificates {
  Certificates() {
    const std::string command =
        std::string(MUSTER_PYTHON " " MUSTER_CERTIFICATES " ") + folder.dir.string();
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command);
  }
  std::string file(const std::string& name) const { return (folder.dir / name).string(); }
  /// Empty names: without it.
  TlsFiles files(const std::string& name, const std::string& ca) const {
    TlsFiles files;
    if (!name.empty()) files.certificate = file(name + ".pem"), files.key = file(name + ".key");
    if (!ca.empty()) files.ca = file(ca + ".pem");
    return files;
  }

  TempFolder folder;
};

}  // namespace muster::testing
