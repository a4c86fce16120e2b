// Reads the files with tokens and other secrets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/access/run_tokens.h"

namespace muster {

/// A shorter token could be guessed.
inline constexpr std::size_t kMinTokenBytes = 16;
inline constexpr std::size_t kMaxTokenBytes = 4096;

/// Why a file is refused, and what to do. Never contains text of the file.
struct TokenError {
  std::string reason;
};

/// The path of $CREDENTIALS_DIRECTORY/rdzv-token, if a service manager has created this file
/// (systemd's LoadCredential=rdzv-token).
std::optional<std::string> credential_token_file();

/// The token in the file, without white space around it. The file is refused if it is missing, is
/// not a regular file, can be read by every user or changed by users other than its owner, or does
/// not contain kMinTokenBytes to kMaxTokenBytes printable ASCII characters.
boost::system::result<std::string, TokenError> read_token_file(const std::string& path);

/// The tokens in a file with the lines that parse_run_tokens() reads. The same rules hold.
boost::system::result<RunTokenTexts, TokenError> read_run_tokens_file(const std::string& path);
/// Another secret: the first line of the file, which must have 1 to `most` bytes. The same rules
/// hold for the type and the permissions of the file.
boost::system::result<std::string, TokenError> read_secret_line(const std::string& path,
                                                                std::size_t most);

}  // namespace muster
