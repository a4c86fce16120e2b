#include "muster/process_group.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <numeric>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/cuda.h>

#include "backends.h"
#include "group_state.h"
#include "named_errors.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);  // As in PyTorch.
constexpr const char* kNotInitialized =
    "there is no process group: init_process_group() must come first, in every process.";

struct World {
  Environment environment;
  std::shared_ptr<ProcessGroup::State> everyone;
  std::vector<std::shared_ptr<ProcessGroup::State>> groups;  // Groups of new_group(), in order.
  std::optional<c10::Device> device;
  int next_name = 1;
};

// The world is on the heap and never freed. A process that ends without destroy_process_group()
// must not wait for its peers, or for a GPU driver that is gone, while static objects are
// destroyed.
std::unique_ptr<World>& world() {
  static auto* const instance = new std::unique_ptr<World>;
  return *instance;
}

World& initialized_world() {
  if (!world()) throw Error(kNotInitialized);
  return *world();
}

std::chrono::milliseconds choose_timeout(const std::optional<std::chrono::milliseconds>& wanted,
                                         const BackendPlan& plan) {
  const auto timeout =
      wanted.value_or(plan.text == "nccl" ? nccl_default_timeout() : kDefaultTimeout);
  if (timeout <= std::chrono::milliseconds::zero())
    throw Error("timeout of " + std::to_string(timeout.count()) + " ms: expected more than 0.");
  return timeout;
}

std::string describe_store(const Environment& environment) {
  const std::string address =
      environment.master_addr + ":" + std::to_string(environment.master_port);
  if (environment.use_agent_store) return address + ", where the launcher hosts it";
  if (environment.rank == 0) return address + ", where this process is to host it";
  return address + ", where rank 0 hosts it";
}

c10::intrusive_ptr<c10d::Store> connect_store(const Environment& environment,
                                              std::chrono::milliseconds timeout) {
  if (environment.master_port == 0 && environment.world_size == 1)
    return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = environment.master_port;
  options.isServer = !environment.use_agent_store && environment.rank == 0;
  options.multiTenant = !environment.use_agent_store;
  options.numWorkers = static_cast<std::size_t>(environment.world_size);
  options.timeout = timeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
    store->setTimeout(timeout);
    return store;
  } catch (const c10::Error& error) {
    throw Error("rank " + std::to_string(environment.rank) + " of " +
                std::to_string(environment.world_size) + ": no store at " +
                describe_store(environment) +
                " (MASTER_ADDR, MASTER_PORT): " + error.what_without_backtrace());
  }
}

void check_device(const ProcessGroupOptions& options) {
  if (!options.device) return;
  if (!options.device->is_cuda() || !options.device->has_index())
    throw Error("device " + options.device->str() +
                ": expected a GPU with its number, as cuda:0; leave it out for the CPU.");
}

// All members connect to each other. `caller` names the function in errors, as in a timeout because
// a member is missing.
void connect_members(const char* caller, const BackendPlan& plan, const GroupRequest& request,
                     ProcessGroup::State& state) {
  const auto describe = [&] {
    return operation_text(caller, request.name, request.rank,
                          static_cast<int>(request.global_ranks.size()));
  };
  MadeGroup made = with_named_errors(describe, [&] { return make_group(plan, request); });
  state.group = std::move(made.group);
  state.split_source = std::move(made.split_source);
  state.recorder = std::move(made.recorder);
}

void leave(ProcessGroup::State& state) {
  if (state.group) state.group->shutdown();
  state.recorder.reset();  // It refers to the group.
  state.split_source.reset();
  state.group.reset();
  state.has_left = true;
}

}  // namespace

const ProcessGroup::State& ProcessGroup::state() const {
  return state_ ? *state_ : *initialized_world().everyone;
}

int ProcessGroup::rank() const {
  const auto& group = state().group;
  return group ? group->getRank() : -1;
}

int ProcessGroup::size() const {
  const auto& group = state().group;
  return group ? group->getSize() : -1;
}

int ProcessGroup::group_rank(int global_rank) const {
  const auto& ranks = state().global_ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end())
    throw Error("rank " + std::to_string(global_rank) + " is no member of this process group of " +
                std::to_string(ranks.size()) + ".");
  return static_cast<int>(found - ranks.begin());
}

int ProcessGroup::global_rank(int group_rank) const {
  const auto& ranks = state().global_ranks;
  if (group_rank < 0 || group_rank >= static_cast<int>(ranks.size()))
    throw Error("rank " + std::to_string(group_rank) + " in a process group of " +
                std::to_string(ranks.size()) + ": expected 0 to " +
                std::to_string(static_cast<int>(ranks.size()) - 1) + ".");
  return ranks[static_cast<std::size_t>(group_rank)];
}

const std::string& ProcessGroup::backend() const {
  return state().backend;
}

c10::intrusive_ptr<c10d::ProcessGroup> ProcessGroup::torch_group() const {
  if (state().has_left)
    throw Error("this process has left process group \"" + state().name +
                "\" with destroy_process_group().");
  if (!state().group)
    throw Error("rank " + std::to_string(get_rank()) +
                " is no member of this process group: only members may use it. Ask is_member().");
  return state().group;
}

c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroup& group) {
  group.torch_group();  // Throws Error if this process is not a member.
  return group.state().store;
}

void init_process_group(const std::string& backend, const ProcessGroupOptions& options) {
  if (world())
    throw Error("init_process_group() was called twice: call destroy_process_group() between.");
  check_device(options);
  c10d::setDebugLevelFromEnvironment();
  const BackendPlan plan = plan_backends(backend);
  World made;
  made.environment = options.environment ? *options.environment : read_environment();
  made.device = options.device;
  if (!made.device && plan.has("nccl"))
    made.device = nccl_default_device(made.environment.local_rank);
  const auto timeout = choose_timeout(options.timeout, plan);

  auto store = options.store ? options.store : connect_store(made.environment, timeout);
  if (!options.store) store = c10::make_intrusive<c10d::PrefixStore>("default_pg", store);
  std::vector<int> ranks(static_cast<std::size_t>(made.environment.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const GroupRequest request{.store = store,
                             .name = "0",
                             .description = "default_pg",
                             .rank = made.environment.rank,
                             .global_ranks = ranks,
                             .is_default = true,
                             .timeout = timeout,
                             .device = made.device};
  auto state = std::make_shared<ProcessGroup::State>();
  connect_members("init_process_group", plan, request, *state);
  state->store = c10::make_intrusive<c10d::PrefixStore>("0/", store);
  state->name = request.name;
  state->backend = plan.text;
  state->global_ranks = std::move(ranks);
  made.everyone = std::move(state);
  world() = std::make_unique<World>(std::move(made));
}

c10::Device local_device() {
  if (!torch::cuda::is_available()) return c10::Device(c10::kCPU);
  const int local_rank = world() ? world()->environment.local_rank : read_environment().local_rank;
  const auto count = torch::cuda::device_count();
  if (local_rank >= count)
    throw Error("local rank " + std::to_string(local_rank) +
                " has no GPU of its own: this node shows " + std::to_string(count) +
                ". Start at most that many processes on it.");
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  // Uses the registry, because CUDA's own functions would need its headers.
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  return device;
}

bool is_initialized() {
  return world() != nullptr;
}

const Environment& environment() {
  return initialized_world().environment;
}

ProcessGroup new_group(std::vector<int> ranks, const NewGroupOptions& options) {
  World& job = initialized_world();
  std::sort(ranks.begin(), ranks.end());
  const int world_size = job.environment.world_size;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= world_size)
      throw Error("new_group: rank " + std::to_string(ranks[i]) + ": expected 0 to " +
                  std::to_string(world_size - 1) + ".");
    if (i > 0 && ranks[i] == ranks[i - 1])
      throw Error("new_group: rank " + std::to_string(ranks[i]) + " is there twice.");
  }
  if (ranks.empty()) throw Error("new_group: no ranks: expected one at least.");

  const BackendPlan plan =
      plan_backends(options.backend.empty() ? job.everyone->backend : options.backend);
  auto state = std::make_shared<ProcessGroup::State>();
  // Non-members count the name, too, so that all processes agree on the next name.
  state->name = std::to_string(job.next_name++);
  state->backend = plan.text;
  state->global_ranks = ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), job.environment.rank);
  const auto split_from = plan.has("nccl") ? job.everyone->split_source : nullptr;
  if (found == ranks.end() && split_from) skip_nccl_split(*split_from, *job.device);
  if (found != ranks.end()) {
    const GroupRequest request{.store = job.everyone->store,
                               .name = state->name,
                               .description = "undefined",
                               .rank = static_cast<int>(found - ranks.begin()),
                               .global_ranks = ranks,
                               .is_default = false,
                               .timeout = choose_timeout(options.timeout, plan),
                               .device = plan.has("nccl") ? job.device : std::nullopt,
                               .split_from = split_from};
    connect_members("new_group", plan, request, *state);
    state->store = c10::make_intrusive<c10d::PrefixStore>(state->name + "/", job.everyone->store);
  }
  job.groups.push_back(state);
  return ProcessGroup(std::move(state));
}

int get_rank() {
  return world() ? world()->environment.rank : -1;
}

int get_world_size() {
  return world() ? world()->environment.world_size : -1;
}

void destroy_process_group() {
  if (!world()) return;
  // Leaves the newest group first, as PyTorch does: in earlier versions of NCCL, the end of a group
  // was a collective operation.
  auto& groups = world()->groups;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group)
    leave(**group);
  leave(*world()->everyone);
  c10d::unregister_all_process_groups();
  world().reset();
}

void destroy_process_group(const ProcessGroup& group) {
  if (group.is_default()) return destroy_process_group();
  auto& groups = initialized_world().groups;
  const auto found = std::find(groups.begin(), groups.end(), group.state_);
  if (found == groups.end())
    throw Error("destroy_process_group: this group was destroyed already.");
  const bool is_member = (*found)->group != nullptr;
  leave(**found);
  if (is_member) c10d::unregister_process_group((*found)->name);
  groups.erase(found);
}

ProcessGroupScope::ProcessGroupScope(const std::string& backend, const ProcessGroupOptions& options)
    : exceptions_(std::uncaught_exceptions()) {
  init_process_group(backend, options);
}

ProcessGroupScope::~ProcessGroupScope() {
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    destroy_process_group();
  } catch (const std::exception&) {
    return;  // Ignored: the work is done, and the process is about to end.
  }
}

}  // namespace muster
