// Functions of libraries that are loaded only where they are needed.
#pragma once

#include <dlfcn.h>

namespace muster {

/// Sets `function` to that of this name in a library that dlopen() has loaded. False: it has none,
/// and dlerror() says so.
template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace muster
