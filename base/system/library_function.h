// Finds functions in libraries that are loaded only if they are needed.
#pragma once

#include <dlfcn.h>

namespace muster {

/// Sets `function` to the function of this name in a library that dlopen() has loaded. Returns
/// false if the library has no such function; dlerror() then describes the failure.
template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace muster
