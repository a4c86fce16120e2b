// The file with the rendezvous' token: read once, at the start.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/wire/run_tokens.h"

namespace muster {

/// Fewer characters could be guessed.
inline constexpr std::size_t kMinTokenBytes = 16;
inline constexpr std::size_t kMaxTokenBytes = 4096;

/// What is wrong, and what to do; never what is in the file.
struct TokenError {
  std::string reason;
};

/// The file $CREDENTIALS_DIRECTORY/rdzv-token, where a service manager has put one (systemd's
/// LoadCredential=rdzv-token); nothing if there is none.
std::optional<std::string> credential_token_file();

/// The token in the file, without white space around it. Refused: a file that is missing, is not a
/// regular file, may be read by everybody or changed by others than its owner, is empty, or does
/// not hold kMinTokenBytes to kMaxTokenBytes printable ASCII characters.
boost::system::result<std::string, TokenError> read_token_file(const std::string& path);

/// The same for a file of parse_run_tokens()'s lines.
boost::system::result<RunTokenTexts, TokenError> read_run_tokens_file(const std::string& path);
/// Another secret: the first line of the file, of 1 to `most` bytes. The file must be as above.
boost::system::result<std::string, TokenError> read_secret_line(const std::string& path,
                                                                std::size_t most);

}  // namespace muster
