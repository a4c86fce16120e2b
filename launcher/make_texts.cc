// make_texts SHARE INCLUDE: writes the texts that muster shows about itself. The build runs this
// program; it is not installed.
//
// SHARE gets the files of an installation: the manual page and the completion scripts. INCLUDE gets
// the texts that muster contains, as string literals for #include.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "launcher/texts.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

void write_literal(const fs::path& path, const std::string& text) {
  write_text(path, "R\"muster(" + text + ")muster\"\n");
}

void write_completion(const fs::path& share, const fs::path& include, const std::string& shell) {
  const std::string text = make_completion(shell);
  write_text(share, text);
  write_literal(include / ("completion_" + shell + ".inc"), text);
}

void write_texts(const fs::path& share, const fs::path& include) {
  write_text(share / "man/man1/muster.1", make_man_page());
  write_literal(include / "help.inc", make_help(false));
  write_literal(include / "help_launch.inc", make_help(true));
  write_completion(share / "bash-completion/completions/muster", include, "bash");
  write_completion(share / "zsh/site-functions/_muster", include, "zsh");
  write_completion(share / "fish/vendor_completions.d/muster.fish", include, "fish");
  write_completion(share / "muster/completions/muster.csh", include, "tcsh");
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: make_texts SHARE INCLUDE\n", stderr);
    return 2;
  }
  try {
    muster::write_texts(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_texts: %s\n", error.what());
    return 1;
  }
}
