// What torchrun has and muster does not carry out yet. A row goes when its feature comes.
#include "launcher/launch_plan.h"

namespace muster {
namespace {

struct Row {
  OptionId option;
  bool (*is_asked_for)(const Flags&);
  const char* what;
};

constexpr Row kRows[] = {
    {OptionId::RdzvBackend,
     [](const Flags& f) {
       return !f.standalone && (f.rdzv_backend == "etcd" || f.rdzv_backend == "etcd-v2");
     },
     "rendezvous through etcd; give c10d or static"},
};

}  // namespace

std::optional<std::string> unsupported(const Flags& flags) {
  for (const Row& row : kRows)
    if (row.is_asked_for(flags))
      return flags.name_of(row.option) + ": muster " MUSTER_VERSION " does not support " + row.what;
  return std::nullopt;
}

}  // namespace muster
