// One number for everything that a simulation has done with one seed: the same before and after a
// change that nobody may notice. docs/testing.md ("Traces") says how to compare two trees.
//
// What goes into a trace is what others can see of the code under test: bytes on the wire, texts of
// states, log lines, instants. No type of the program, because the program's types may change.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace muster::testing {

class Trace {
 public:
  /// The trace of the seed that runs now.
  static Trace& now() {
    static Trace trace;
    return trace;
  }

  /// Traces are kept if MUSTER_TRACES names a file. A simulation may skip what only a trace needs.
  bool wanted() const { return file_ != nullptr; }

  void begin() { hash_ = kBasis; }

  /// FNV-1a. The size goes first, so that "a", "bc" is not "ab", "c".
  void add(std::string_view text) {
    if (!wanted()) return;
    add(static_cast<std::int64_t>(text.size()));
    for (const char c : text)
      mix(static_cast<unsigned char>(c));
  }
  void add(std::int64_t number) {
    if (!wanted()) return;
    for (int shift = 0; shift < 64; shift += 8)
      mix(static_cast<std::uint64_t>(number) >> shift & 0xff);
  }

  /// Appends "HASH SEED TEST" to the file: one write, as several tests may run at a time.
  void end(std::uint64_t seed) const {
    if (!wanted()) return;
    std::FILE* const out = std::fopen(file_, "a");
    REQUIRE(out != nullptr);
    std::fprintf(out, "%016" PRIx64 " %" PRIu64 " %s\n", hash_, seed,
                 Catch::getResultCapture().getCurrentTestName().c_str());
    std::fclose(out);
  }

 private:
  static constexpr std::uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;

  void mix(std::uint64_t byte) { hash_ = (hash_ ^ byte) * kPrime; }

  const char* file_ = std::getenv("MUSTER_TRACES");
  std::uint64_t hash_ = kBasis;
};

}  // namespace muster::testing
