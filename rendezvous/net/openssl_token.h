// TokenCrypto by OpenSSL's libcrypto, which is loaded only where there is a token: linked, it would
// add 0.4 ms (static) or 2 ms (shared) to every start of muster.
// docs/decisions/0015-who-gets-in.md.
#pragma once

#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/net/token_file.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

/// With this token. An error if this machine, or this build, cannot use one.
boost::system::result<SharedTokenCrypto, TokenError> make_token_crypto(std::string token);

/// read_token_file() and make_token_crypto(). An empty path means no token: null.
boost::system::result<SharedTokenCrypto, TokenError> load_token(const std::string& path);

/// read_run_tokens_file() and make_token_crypto(). An empty path means none.
boost::system::result<HostTokens::OfRuns, TokenError> load_run_tokens(const std::string& path);

}  // namespace muster
