#include "base/address_scope.h"

#include <cstddef>

namespace muster {
namespace {

constexpr std::size_t kScopePrefixDigits = 4;  // Of "fe80".

char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Where the scope begins, with its '%'; npos if the text is no IPv6 address with a scope.
std::size_t scope_at(std::string_view address) {
  const std::size_t at = address.find('%');
  return address.substr(0, at).find(':') == std::string_view::npos ? std::string_view::npos : at;
}

}  // namespace

std::string scope_of(std::string_view address) {
  const std::size_t at = scope_at(address);
  return at == std::string_view::npos ? std::string() : std::string(address.substr(at + 1));
}

std::string without_scope(std::string_view address) {
  return std::string(address.substr(0, scope_at(address)));
}

bool is_link_local(std::string_view address) {
  if (address.find(':') != kScopePrefixDigits) return false;
  const char third = lower_case(address[2]);
  return lower_case(address[0]) == 'f' && lower_case(address[1]) == 'e' &&
         (third == '8' || third == '9' || third == 'a' || third == 'b');
}

std::string with_scope(std::string_view address, std::string_view scope) {
  if (scope.empty() || !is_link_local(address)) return std::string(address);
  return without_scope(address) + "%" + std::string(scope);
}

}  // namespace muster
