// What the agent is told to do: the launcher's flags and variables, checked and resolved.
//
// A plain value; launcher/launch_plan.h makes it, agent/io/run_job.h takes it. Meanings and
// defaults are torchrun's unless a comment says otherwise (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/settings.h"
#include "rendezvous/core/time.h"

namespace muster {

class TokenCrypto;  // rendezvous/wire/token_proof.h
class TlsPump;      // rendezvous/tls/tls_pump.h
class TlsAllow;     // rendezvous/core/tls_allow.h
struct C10dAllow;   // rendezvous/net/c10d_allow.h

/// Which of a worker's streams something applies to: torchrun's 0, 1, 2 and 3.
struct StreamSet {
  bool out = false;
  bool err = false;
  bool operator==(const StreamSet&) const = default;
};

/// A value for every local rank: `-r 3`, or `-r 0:1,1:3` with nothing for the others.
struct StreamMap {
  StreamSet all;
  std::map<int, StreamSet> by_local_rank;  // Replaces `all` when not empty.
  bool per_rank = false;

  StreamSet at(int local_rank) const {
    if (!per_rank) return all;
    const auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? StreamSet{} : found->second;
  }
  bool operator==(const StreamMap&) const = default;
};

/// When muster keeps a copy of the end of a worker's stderr that is neither redirected nor teed.
enum class CaptureStderr {
  Auto,    // Unless it is a terminal, which the worker then has itself.
  Always,  // Also on a terminal: the worker sees a pipe.
  Never,   // The worker inherits the descriptor, as under torchrun.
};

/// What a full disk of the log files means.
enum class LogOnFull {
  Drop,  // What does not fit is dropped and counted: a worker never notices.
  Fail,  // The job ends.
};

/// --logs-specs NAME, of any name but torch's own: a Python plug-in says where the logs go, and
/// makes the directories; see agent/core/logs_specs.h.
struct LogsSpecsOptions {
  std::string name;
  std::vector<std::string> command;  // The program that has the plug-in in it; [0] as for workers.
  std::string log_dir;               // --log-dir, for the plug-in; empty: not given.
};

struct LogOptions {
  std::optional<LogsSpecsOptions> specs;  // Then `dir` is empty, and `discard` false.
  std::string dir;       // --log-dir; empty: a temporary directory, removed after success.
  bool discard = false;  // --log-dir /dev/null: no directory, no error file.
  StreamMap redirects;   // -r: to the file only.
  StreamMap tee;         // -t: to the file and, prefixed, to the console.
  std::set<int> local_ranks_filter;  // Empty: every local rank is shown on the console.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  std::string prefix_template;  // TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; empty: "[role<rank>]:".
  CaptureStderr capture_stderr = CaptureStderr::Auto;
  std::int64_t max_bytes = 0;           // --log-max-bytes, of each log file; 0: no limit.
  LogOnFull on_full = LogOnFull::Drop;  // --log-on-full
};

enum class RendezvousBackend { Static, C10d, Etcd };

/// --rdzv-backend etcd: beyond the members, which RendezvousOptions has as endpoints.
struct EtcdRendezvousOptions {
  std::string prefix;  // Of the keys; begins with a slash and ends without one.
  Duration host_lease = std::chrono::seconds(3);
  bool speaks_tls = false;      // protocol=https
  std::string tls_ca;           // cacert; empty: not given. The same for the other two.
  std::string tls_certificate;  // cert
  std::string tls_key;          // key
  /// By which this node comes to etcd; null: plain.
  std::shared_ptr<TlsPump> tls;
};

struct RendezvousEndpoint {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const RendezvousEndpoint&) const = default;
};

struct RendezvousOptions {
  RendezvousBackend backend = RendezvousBackend::C10d;
  std::string backend_name = "c10d";  // As given: etcd and etcd-v2 are one backend.
  bool standalone = true;  // One node that meets only itself: no network beyond loopback.
  std::string endpoint;    // host[:port], as given; several: with commas between them.
  std::string host;        // The first one taken apart; static: the workers' MASTER_ADDR and _PORT.
  std::uint16_t port = 29400;
  /// The endpoints after the first. c10d: musterds of which one leads; no agent hosts. etcd:
  /// further members.
  std::vector<RendezvousEndpoint> further;
  EtcdRendezvousOptions etcd;
  std::map<std::string, std::string> conf;  // --rdzv-conf
  RendezvousSettings settings;              // The same, and --nnodes; unless standalone.
  int node_rank = 0;
  /// c10d: the order in a first round, by --node-rank or what a scheduler says.
  std::optional<int> preferred_rank;
  std::string local_addr;         // --local-addr; empty: not given.
  bool worker_identical = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1
  std::string token_file;         // --rdzv-token-file; empty: not given.
  /// What was in it, or in the service manager's credential; null: no token.
  std::shared_ptr<const TokenCrypto> token;
  std::string tls_ca;           // --rdzv-tls-ca; empty: no TLS.
  std::string tls_certificate;  // --rdzv-tls-cert; empty: not given.
  std::string tls_key;          // --rdzv-tls-key
  /// --rdzv-tls-allow, where the rendezvous is here; null: not given.
  std::shared_ptr<const TlsAllow> tls_allow;
  /// By which this node comes to the rendezvous; null: by plain TCP.
  std::shared_ptr<TlsPump> tls;
  /// Of the rendezvous that this node hosts; null: it cannot with TLS, having no certificate.
  std::shared_ptr<TlsPump> host_tls;
  /// --c10d-allow, for the rendezvous and the workers' store where they are here; null: everybody.
  std::shared_ptr<const C10dAllow> c10d_allow;
  /// --http: [ADDRESS:]PORT, where the rendezvous is here; empty: not given. Already checked.
  std::string http;
  bool shares_store = true;  // Not with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: rank 0 then hosts it.
};

struct AgentOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int local_world_size = 1;  // Workers on this node.
  std::string run_id;
  std::string role = "default";
  int max_restarts = 0;
  bool propagate_exit_code = false;  // --exit-code=propagate
  std::string failure_report;        // A file for the JSON form of the report; empty: none.
  std::string
      own_error_file;  // TORCHELASTIC_ERROR_FILE that was set for the launcher; empty: none.
  Duration shutdown_timeout = std::chrono::seconds(30);  // From SIGTERM to SIGKILL.
  Duration hang_timeout{};  // --hang-timeout; 0: workers may do nothing for as long as they like.
  std::vector<int> signals_to_handle;  // Numbers; each ends the job gracefully.
  std::string signals_to_handle_text;  // As given: goes into the workers' environment.

  /// The worker's command before macro substitution. command[0] is a path or a name to look up
  /// in PATH. Words from `first_argument` on are subject to ${local_rank} substitution.
  std::vector<std::string> command;
  std::size_t first_argument = 1;
  /// Where to insert "--local-rank=N" (torch.distributed.launch); nothing for torchrun.
  std::optional<std::size_t> local_rank_argument_at;
  std::string entry_point;  // The failure summary's title: the script, module or program.

  /// In addition to the agent's own environment and stronger: CUDA_VISIBLE_DEVICES of
  /// --nproc-per-node gpu:1,3, OMP_NUM_THREADS of --omp.
  std::map<std::string, std::string> worker_environment;

  bool virtual_local_rank = false;   // Entries of CUDA_VISIBLE_DEVICES in worker_environment first.
  bool set_omp_num_threads = false;  // OMP_NUM_THREADS=1 for each worker: nproc > 1 and unset.

  /// --numa-binding: for each local rank the CPUs that it may run on; empty: not bound.
  std::vector<std::set<int>> cpus;
  bool runs_path = false;          // --run-path: the command is muster's own small program.
  bool events_on_console = false;  // --event-log-handler console

  RendezvousOptions rendezvous;
  LogOptions log;
};

}  // namespace muster
