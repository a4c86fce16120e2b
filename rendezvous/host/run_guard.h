// The definition of RunService::guard(), for the files that implement RunService.
#pragma once

#include <exception>

#include "rendezvous/host/run_service.h"

namespace muster {

template <typename Work>
bool RunService::guard(Run& run, Instant now, const Work& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    apply(run, run.rendezvous->abandon(error.what()), now);
    finish_change(run, now);
    return false;
  }
}

}  // namespace muster
