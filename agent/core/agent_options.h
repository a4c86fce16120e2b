// The agent's options: the launcher's flags and environment variables, checked and resolved.
//
// A plain value: launcher/launch_plan.h creates it, and agent/io/run_job.h uses it. Meanings and
// defaults are torchrun's unless a comment says otherwise (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/rounds/settings.h"

namespace muster {

class TokenCrypto;  // rendezvous/access/token_proof.h
class TlsPump;      // rendezvous/tls/tls_pump.h
class TlsAllow;     // rendezvous/access/tls_allow.h
struct C10dAllow;   // rendezvous/server/c10d_allow.h

/// Which of a worker's streams an option applies to: torchrun's 0, 1, 2 and 3.
struct StreamSet {
  bool out = false;
  bool err = false;
  bool operator==(const StreamSet&) const = default;
};

/// A value for every local rank: `-r 3`, or `-r 0:1,1:3`, which selects no stream of other ranks.
struct StreamMap {
  StreamSet all;
  std::map<int, StreamSet> by_local_rank;  // Used instead of `all` if per_rank.
  bool per_rank = false;

  StreamSet at(int local_rank) const {
    if (!per_rank) return all;
    const auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? StreamSet{} : found->second;
  }
  bool operator==(const StreamMap&) const = default;
};

/// When muster keeps a copy of the last part of a worker's stderr, if that stream is neither
/// redirected nor teed.
enum class CaptureStderr {
  Auto,    // Unless stderr is a terminal: then the worker inherits the terminal.
  Always,  // Also on a terminal: the worker writes to a pipe.
  Never,   // The worker inherits the descriptor, as under torchrun.
};

/// What happens when the disk with the log files is full.
enum class LogOnFull {
  Drop,  // Output that does not fit is dropped and counted. Workers do not notice.
  Fail,  // The job ends.
};

/// --logs-specs NAME, for any name but torch's own. A Python plug-in decides where the logs go, and
/// creates the directories; see agent/core/logs_specs.h.
struct LogsSpecsOptions {
  std::string name;
  std::vector<std::string> command;  // The program that runs the plug-in; [0] as for workers.
  std::string log_dir;               // --log-dir, for the plug-in. Empty: not given.
};

struct LogOptions {
  std::optional<LogsSpecsOptions> specs;  // If set, `dir` is empty and `discard` is false.
  std::string dir;       // --log-dir; empty: a temporary directory, removed after success.
  bool discard = false;  // --log-dir /dev/null: no directory, no error file.
  StreamMap redirects;   // -r: the stream goes to its file only.
  StreamMap tee;         // -t: to its file and, with a prefix, to the console.
  std::set<int> local_ranks_filter;  // The ranks shown on the console; empty: all.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  std::string prefix_template;  // --log-line-prefix-template; empty: "[role<rank>]:".
  CaptureStderr capture_stderr = CaptureStderr::Auto;
  std::int64_t max_bytes = 0;           // --log-max-bytes, per log file; 0: no limit.
  LogOnFull on_full = LogOnFull::Drop;  // --log-on-full

  /// Whether the console shows this local rank. As under torchrun, the filter has no effect with
  /// --log-dir /dev/null.
  bool shows(int local_rank) const {
    return discard || local_ranks_filter.empty() || local_ranks_filter.contains(local_rank);
  }
};

enum class RendezvousBackend { Static, C10d, Etcd };

/// --rdzv-backend etcd. The addresses of etcd's members are endpoints in RendezvousOptions.
struct EtcdRendezvousOptions {
  std::string prefix;  // The prefix of all keys; begins with a slash and ends without one.
  Duration host_lease = std::chrono::seconds(3);
  bool speaks_tls = false;      // protocol=https
  std::string tls_ca;           // cacert. In these three, empty means not given.
  std::string tls_certificate;  // cert
  std::string tls_key;          // key
  /// The TLS client for connections to etcd. Null: without TLS.
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
  bool standalone = true;  // The job has one node, which uses no network beyond loopback.
  std::string endpoint;    // host[:port], as given. Several endpoints are separated by commas.
  /// The host of the first endpoint. Backend static: host and port are the workers' MASTER_ADDR and
  /// MASTER_PORT.
  std::string host;
  std::uint16_t port = 29400;
  /// The endpoints after the first. c10d: musterds, one of which is the leader; no agent hosts
  /// then. etcd: further members.
  std::vector<RendezvousEndpoint> further;
  EtcdRendezvousOptions etcd;
  std::map<std::string, std::string> conf;  // --rdzv-conf
  RendezvousSettings settings;              // From --rdzv-conf and --nnodes; not if standalone.
  int node_rank = 0;
  /// c10d: the preferred rank in a first round, from --node-rank or from a scheduler.
  std::optional<int> preferred_rank;
  std::string local_addr;         // --local-addr. Empty: not given.
  bool worker_identical = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1
  std::string token_file;         // --rdzv-token-file. Empty: not given.
  /// The token from that file or from the service manager's credential. Null: no token.
  std::shared_ptr<const TokenCrypto> token;
  std::string tls_ca;           // --rdzv-tls-ca. Empty: no TLS.
  std::string tls_certificate;  // --rdzv-tls-cert. Empty: not given.
  std::string tls_key;          // --rdzv-tls-key
  /// --rdzv-tls-allow, used if this node hosts the rendezvous. Null: not given.
  std::shared_ptr<const TlsAllow> tls_allow;
  /// The TLS client for the connection to the rendezvous. Null: plain TCP.
  std::shared_ptr<TlsPump> tls;
  /// The TLS server of the rendezvous that this node hosts. Null: this node has no certificate, and
  /// cannot host with TLS.
  std::shared_ptr<TlsPump> host_tls;
  /// --c10d-allow, for the rendezvous and the workers' store if they are on this node. Null: all
  /// clients are allowed.
  std::shared_ptr<const C10dAllow> c10d_allow;
  /// --http: [ADDRESS:]PORT, used if this node hosts the rendezvous. Already checked. Empty: not
  /// given.
  std::string http;
  /// False with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: then rank 0 hosts the workers' store.
  bool shares_store = true;
};

/// --warm: workers are forks of a process that has done the imports.
struct WarmOptions {
  std::string program;  // The text of launcher/zygote.py.
  std::string modules;  // Further modules that it imports, separated by commas.
};

/// --notice-signals: this signal to muster says that the node goes when `left` is over.
struct NoticeSignal {
  int number = 0;
  Duration left{};
  bool operator==(const NoticeSignal&) const = default;
};

struct AgentOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int local_world_size = 1;  // The number of workers on this node.
  std::string run_id;
  std::string role = "default";
  int max_restarts = 0;
  RestartPolicy restart_policy;      // --restart-policy
  std::string progress_file;         // --progress-file: an absolute path. Empty: not given.
  bool propagate_exit_code = false;  // --exit-code=propagate
  std::string failure_report;        // The path of the JSON form of the report. Empty: none.
  /// The launcher's own TORCHELASTIC_ERROR_FILE. Empty: none.
  std::string own_error_file;
  Duration shutdown_timeout = std::chrono::seconds(30);  // From SIGTERM to SIGKILL.
  /// A worker that catches the signal that ends it gets that signal alone, and the other processes
  /// of its group get it later. False: they all get it at once, as under torchrun.
  bool signal_to_leader = true;
  Duration leftover_timeout = std::chrono::seconds(30);  // For what workers leave that succeed.
  Duration hang_timeout{};             // --hang-timeout; 0: idle workers are not detected.
  std::vector<int> signals_to_handle;  // Signal numbers; each ends the job gracefully.
  /// Signal numbers; each is passed on to the workers, and does not end the job.
  std::vector<int> signals_to_forward;
  bool forwards_ignored = false;  // Also those that the launcher has inherited as ignored.
  /// None of them is in signals_to_handle or signals_to_forward, and none ends the job by itself.
  std::vector<NoticeSignal> notice_signals;
  /// --notice-from: a line for /bin/sh. The program says when this node goes. Empty: not given.
  std::string notice_from;
  Duration notice_left = std::chrono::seconds(120);  // --notice-seconds
  std::string signals_to_handle_text;  // As given: goes into the workers' environment.

  /// The worker's command before macro substitution. command[0] is a path, or a name that is looked
  /// up in PATH. In the words from `first_argument` on, ${local_rank} is substituted.
  std::vector<std::string> command;
  std::size_t first_argument = 1;
  /// The position at which "--local-rank=N" is inserted (torch.distributed.launch). Empty for
  /// torchrun.
  std::optional<std::size_t> local_rank_argument_at;
  std::optional<WarmOptions> warm;  // --warm; only if the command is Python's.
  std::string entry_point;          // The failure summary's title: the script, module or program.

  /// Variables that are added to the agent's own environment, or override it: CUDA_VISIBLE_DEVICES
  /// of --nproc-per-node gpu:1,3, OMP_NUM_THREADS of --omp.
  std::map<std::string, std::string> worker_environment;

  /// --virtual-local-rank: each worker sees one device, its entry of CUDA_VISIBLE_DEVICES. The
  /// value in worker_environment comes before the agent's own.
  bool virtual_local_rank = false;
  bool set_omp_num_threads = false;  // OMP_NUM_THREADS=1 per worker: nproc > 1 and not set.

  /// --numa-binding: the CPUs that each local rank may run on. Empty: no binding.
  std::vector<std::set<int>> cpus;
  bool runs_path = false;          // --run-path: the command is muster's own small program.
  bool events_on_console = false;  // --event-log-handler console

  RendezvousOptions rendezvous;
  LogOptions log;
};

}  // namespace muster
