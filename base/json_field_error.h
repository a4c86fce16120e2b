// Why JSON of another program is not the message or record that it should be.
#pragma once

#include <string>

namespace muster {

/// `field` is the path of the wrong field, as in "name.addr". Empty: the error concerns the whole
/// message.
struct JsonFieldError {
  std::string field;
  std::string reason;
};

/// "field name.addr: missing"
inline std::string describe(const JsonFieldError& error) {
  return (error.field.empty() ? "the message" : "field " + error.field) + ": " + error.reason;
}

}  // namespace muster
