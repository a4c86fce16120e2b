// The scope of an IPv6 link-local address: "eth0" in fe80::1%eth0. It names an interface of one
// machine, so another machine cannot use it.
//
// Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// The part after the first '%' of an IPv6 address. Empty if there is none.
std::string scope_of(std::string_view address);
/// The address as it can be given to other machines. Other texts are returned unchanged.
std::string without_scope(std::string_view address);
/// Whether the text looks like an IPv6 address in fe80::/10.
bool is_link_local(std::string_view address);
/// The address as this machine uses it, if its own scope on that link is `scope`: a link-local
/// address gets this scope, whatever scope it has. Other texts are returned unchanged, and so is
/// every text if `scope` is empty.
std::string with_scope(std::string_view address, std::string_view scope);

}  // namespace muster
