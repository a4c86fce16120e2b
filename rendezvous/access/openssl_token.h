// TokenCrypto with OpenSSL's libcrypto. The library is loaded only if there is a token: linked, it
// would add 0.4 ms (static) or 2 ms (shared) to every start of muster.
// docs/decisions/0015-who-gets-in.md.
#pragma once

#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/access/token_file.h"
#include "rendezvous/access/token_proof.h"

namespace muster {

/// Fails if this machine or this build cannot use a token.
boost::system::result<SharedTokenCrypto, TokenError> make_token_crypto(std::string token);

/// Calls read_token_file() and make_token_crypto(). Returns null if the path is empty.
boost::system::result<SharedTokenCrypto, TokenError> load_token(const std::string& path);

/// Calls read_run_tokens_file() and make_token_crypto(). Returns no tokens if the path is empty.
boost::system::result<HostTokens::OfRuns, TokenError> load_run_tokens(const std::string& path);

}  // namespace muster
