// Reads the replies of a TCPStore server, for its client. Pure: the reader asks for the next bytes,
// and the caller receives them. docs/protocol.md has the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <boost/system/result.hpp>

namespace muster {

enum class ReplyFault {
  TooLarge,    // The reply announces more than the limit.
  Unexpected,  // No TCPStore server sends such a reply.
};

/// Reads one reply. An announced length alone takes no memory: a text grows as its bytes arrive.
class ReplyReader {
 public:
  static ReplyReader number() { return {Next::Number, 0, 0}; }
  /// `bytes_max` limits the sum of the bytes of all texts. Each text after the first also costs the
  /// size of a std::string.
  static ReplyReader text(std::uint64_t bytes_max) { return texts(1, bytes_max); }
  static ReplyReader texts(std::size_t count, std::uint64_t bytes_max) {
    return {count == 0 ? Next::Nothing : Next::Length, count, bytes_max};
  }
  /// For a reply that is the number of texts, and then the texts.
  static ReplyReader list(std::uint64_t bytes_max) { return {Next::Count, 0, bytes_max}; }
  /// For a reply that is a number, and then a text if the number is above 0.
  static ReplyReader popped(std::uint64_t bytes_max) { return {Next::PoppedCount, 0, bytes_max}; }

  /// The memory that the caller must fill with the next bytes of the reply. Empty: the reply is
  /// complete.
  std::span<char> wanted();
  /// The caller has filled wanted(). After a fault the connection cannot be used any more.
  boost::system::result<void, ReplyFault> received();

  /// The number that the reply consists of, or begins with.
  std::int64_t value() const { return number_; }
  std::vector<std::string>& found() { return texts_; }

 private:
  enum class Next { Number, Count, PoppedCount, Length, Text, Nothing };
  ReplyReader(Next next, std::uint64_t texts_left, std::uint64_t bytes_left)
      : next_(next), texts_left_(texts_left), bytes_left_(bytes_left) {}

  boost::system::result<void, ReplyFault> begin_text(std::uint64_t bytes);
  void end_text() { next_ = --texts_left_ == 0 ? Next::Nothing : Next::Length; }

  Next next_;
  std::uint64_t texts_left_;
  std::uint64_t bytes_left_;  // The part of `bytes_max` that is left.
  std::array<char, 8> head_{};
  std::int64_t number_ = 0;
  std::size_t text_bytes_ = 0;  // The announced length of the last text.
  std::size_t text_came_ = 0;   // The bytes of that text that have arrived.
  std::vector<std::string> texts_;
};

}  // namespace muster
