#include "musterctl/http_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/percent.h"

namespace muster::ctl {

std::string Endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

boost::system::result<Endpoint, ClientError> parse_endpoint(std::string_view text) {
  ClientError wrong{"'" + std::string(text.substr(0, 200)) +
                    "' is not HOST:PORT, as in localhost:9400 or [::1]:9400"};
  for (const std::string_view scheme : {"http://", "https://"})
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  Endpoint endpoint;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  const bool bad_port = parsed.ec != std::errc() || parsed.ptr != port.data() + port.size();
  const bool bad_host = host.empty() || host.find('/') != std::string_view::npos ||
                        (!brackets && host.find(':') != std::string_view::npos);
  if (bad_port || bad_host || endpoint.port == 0) return wrong;
  endpoint.host = host;
  return endpoint;
}

namespace {

// The head of an answer in lower case, with its last line break; empty: it is not complete yet, or
// too large.
std::string head_of(std::string_view bytes) {
  const std::size_t end = bytes.substr(0, kMaxHeadBytes).find("\r\n\r\n");
  if (end == std::string_view::npos) return {};
  std::string head(bytes.substr(0, end + 2));
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return head;
}

// The length of the body; nothing if the head does not give it.
std::optional<std::size_t> body_bytes(const std::string& head) {
  constexpr std::string_view kLength = "\r\ncontent-length: ";
  const std::size_t found = head.find(kLength);
  if (found == std::string::npos) return std::nullopt;
  std::size_t length = 0;
  const char* digits = head.data() + found + kLength.size();
  if (std::from_chars(digits, head.data() + head.size(), length).ec != std::errc())
    return std::nullopt;
  return length;
}

// musterd's nonces have only digits and lower-case letters: the head in lower case has them
// unchanged.
std::string nonce_of(const std::string& head) {
  constexpr std::string_view kField = "\r\nwww-authenticate: muster nonce=\"";
  const std::size_t found = head.find(kField);
  if (found == std::string::npos) return {};
  const std::size_t begin = found + kField.size();
  const std::size_t end = head.find_first_not_of("0123456789abcdef", begin);
  return end != std::string::npos && head[end] == '"' ? head.substr(begin, end - begin)
                                                      : std::string();
}

}  // namespace

std::size_t answer_bytes(std::string_view bytes) {
  const std::string head = head_of(bytes);
  if (head.empty()) return bytes.size() > kMaxHeadBytes ? bytes.size() : 0;
  return head.size() + 2 + std::min(body_bytes(head).value_or(0), kMaxAnswerBytes);
}

boost::system::result<HttpAnswer, ClientError> parse_answer(std::string_view bytes) {
  ClientError strange{"what answers is not musterd's HTTP"};
  const std::string head = head_of(bytes);
  if (head.empty() || !bytes.starts_with("HTTP/1.") || bytes.size() < 12) return strange;
  HttpAnswer answer;
  const std::string_view code = bytes.substr(9, 3);
  const char* const end = code.data() + code.size();
  if (std::from_chars(end - code.size(), end, answer.status).ptr != end) return strange;
  const auto length = body_bytes(head);
  if (!length) return strange;  // musterd always sends the length.
  answer.body = bytes.substr(head.size() + 2);
  if (answer.body.size() < *length) return ClientError{"the answer was cut off"};
  answer.body.resize(*length);
  answer.nonce = nonce_of(head);
  return answer;
}

std::string percent_encoded(std::string_view text) {
  return percent_encode(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace muster::ctl
