#include "rendezvous/store/reply_reader.h"

#include <algorithm>

#include <boost/endian/conversion.hpp>

namespace muster {
namespace {

constexpr std::size_t kFirstReplyBytes = 1 << 20;

}  // namespace

std::span<char> ReplyReader::wanted() {
  switch (next_) {
    case Next::Nothing:
      return {};
    case Next::Text: {
      std::string& text = texts_.back();
      text.resize(std::min(text_bytes_, std::max(2 * text_came_, kFirstReplyBytes)));
      return {text.data() + text_came_, text.size() - text_came_};
    }
    case Next::Number:
    case Next::Count:
    case Next::PoppedCount:
    case Next::Length:
      return head_;
  }
  return {};
}

boost::system::result<void, ReplyFault> ReplyReader::received() {
  if (next_ == Next::Text) {
    text_came_ = texts_.back().size();
    if (text_came_ == text_bytes_) end_text();
    return {};
  }
  const auto number =
      boost::endian::load_little_s64(reinterpret_cast<const unsigned char*>(head_.data()));
  switch (next_) {
    case Next::Length:
      return begin_text(static_cast<std::uint64_t>(number));
    case Next::Count:
      if (number < 0) return ReplyFault::Unexpected;
      texts_left_ = static_cast<std::uint64_t>(number);
      break;
    case Next::PoppedCount:
      texts_left_ = number > 0 ? 1 : 0;
      break;
    case Next::Number:
    case Next::Text:
    case Next::Nothing:
      texts_left_ = 0;
      break;
  }
  number_ = number;
  next_ = texts_left_ == 0 ? Next::Nothing : Next::Length;
  return {};
}

boost::system::result<void, ReplyFault> ReplyReader::begin_text(std::uint64_t bytes) {
  if (bytes > bytes_left_) return ReplyFault::TooLarge;
  // Each text after the first also costs its std::string. So a list of endless empty texts reaches
  // the limit.
  const std::uint64_t cost = bytes + (texts_.empty() ? 0 : sizeof(std::string));
  bytes_left_ -= std::min(bytes_left_, cost);
  if (!texts_.empty() && bytes_left_ == 0) return ReplyFault::TooLarge;
  texts_.emplace_back();
  text_bytes_ = bytes;
  text_came_ = 0;
  next_ = Next::Text;
  if (bytes == 0) end_text();
  return {};
}

}  // namespace muster
