// The replies of a TCPStore server, as its client reads them. Pure: it says how many bytes come
// next. docs/protocol.md has the bytes.
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
  TooLarge,    // It announces more than the limit.
  Unexpected,  // No TCPStore server answers this.
};

/// Reads one reply. A length that is announced takes no memory: a text grows as its bytes come.
class ReplyReader {
 public:
  static ReplyReader number() { return {Next::Number, 0, 0}; }
  /// `bytes_max`: of all texts of the reply, and of what it costs to hold them.
  static ReplyReader text(std::uint64_t bytes_max) { return texts(1, bytes_max); }
  static ReplyReader texts(std::size_t count, std::uint64_t bytes_max) {
    return {count == 0 ? Next::Nothing : Next::Length, count, bytes_max};
  }
  /// Texts, and before them how many they are.
  static ReplyReader list(std::uint64_t bytes_max) { return {Next::Count, 0, bytes_max}; }
  /// A number, and a text if the number is above 0.
  static ReplyReader popped(std::uint64_t bytes_max) { return {Next::PoppedCount, 0, bytes_max}; }

  /// Where the reply's next bytes are to be put, all of them; empty: the reply is complete.
  std::span<char> wanted();
  /// They are there. After a fault the connection is of no use any more.
  boost::system::result<void, ReplyFault> received();

  /// The number that the reply is, or begins with.
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
  std::uint64_t bytes_left_;  // Until the limit.
  std::array<char, 8> head_{};
  std::int64_t number_ = 0;
  std::size_t text_bytes_ = 0;  // Of the last text, when it is complete.
  std::size_t text_came_ = 0;   // Bytes of it that are there.
  std::vector<std::string> texts_;
};

}  // namespace muster
