#include "agent/io/stack_collector.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "agent/posix/find_program.h"
#include "agent/posix/helper_process.h"
#include "agent/posix/process_activity.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/no_throw.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using namespace std::chrono_literals;

namespace {

constexpr Duration kToolLimit = 15s;  // gdb reads the symbols of some hundred megabytes.
constexpr Duration kAllLimit = 30s;
constexpr std::size_t kAtOnce = 4;       // Tools; each takes a CPU and some 100 MB.
constexpr std::size_t kChildrenMax = 8;  // Of one worker, whose Python stacks are shown.
constexpr int kFilesMax = 1000;          // In one directory.
constexpr std::size_t kOutputBytesMax = 4 << 20;

// What would change what the programs do: gdb has a Python inside, and a network client.
constexpr std::array<std::string_view, 7> kNotForTools{
    "LD_PRELOAD=",    "LD_LIBRARY_PATH=", "PYTHONHOME=",    "PYTHONPATH=",
    "PYTHONSTARTUP=", "DEBUGINFOD_URLS=", "RUST_BACKTRACE="};

std::vector<std::string> environment_for_tools(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& variable) {
    return std::any_of(kNotForTools.begin(), kNotForTools.end(),
                       [&variable](std::string_view name) { return variable.starts_with(name); });
  });
  environment.emplace_back("RUST_BACKTRACE=0");
  return environment;
}

struct Tools {
  std::string py_spy;  // Paths; empty: not found.
  std::string gdb;
  std::string eu_stack;
};

/// `pythons`: programs beside which py-spy may be.
Tools find_tools(const std::vector<std::string>& environment,
                 const std::vector<std::string>& pythons) {
  std::string path = "/usr/bin:/bin";
  for (const std::string& variable : environment)
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  const auto find = [](const std::string& name, const std::string& where) {
    const Result<std::string> found = find_program(name, where);
    return found ? *found : std::string();
  };
  Tools tools{.gdb = find("gdb", path), .eu_stack = find("eu-stack", path)};
  for (const std::string& python : pythons)
    if (const std::size_t slash = python.rfind('/');
        slash != std::string::npos && tools.py_spy.empty())
      tools.py_spy = find(python.substr(0, slash) + "/py-spy", path);
  if (tools.py_spy.empty()) tools.py_spy = find("py-spy", path);
  return tools;
}

std::string time_of_day() {
  const time_t seconds = ::time(nullptr);
  tm fields{};
  ::localtime_r(&seconds, &fields);
  std::array<char, 64> text{};
  ::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S %z", &fields);
  return text.data();
}

/// For workers without a log directory; empty if it cannot be made, with errno.
std::string make_temporary_dir() {
  const char* root = std::getenv("TMPDIR");
  std::string path = root != nullptr && *root != '\0' ? root : "/tmp";
  path += "/muster_stacks_XXXXXX";
  return ::mkdtemp(path.data()) == nullptr ? std::string() : path;
}

/// Opens `dir`/stacks.<n>.txt with the first n that is free.
int open_new_file(const std::string& dir, std::string& path) {
  for (int n = 0; n < kFilesMax; ++n) {
    path = dir + "/stacks." + std::to_string(n) + ".txt";
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  errno = EEXIST;
  return -1;
}

void append(int fd, std::string_view text) {
  while (fd >= 0 && !text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n <= 0) return;  // A full disk: the log line says what is known anyway.
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void append_section(int fd, const std::string& title, std::string_view text) {
  append(fd, "\n== " + title + "\n");
  append(fd, text);
  if (!text.empty() && text.back() != '\n') append(fd, "\n");
}

struct ToolOutput {
  bool ok = false;
  std::string text;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + (word.find(' ') == word.npos ? word : "'" + word + "'");
  return text;
}

}  // namespace

/// One collection: what is left to do, and what has come out.
struct StackCollector::Job : std::enable_shared_from_this<StackCollector::Job> {
  struct Step {
    bool native = false;
    std::size_t index = 0;
  };

  Job(asio::io_context& io_context, std::vector<Target> all)
      : io(io_context), targets(std::move(all)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (const int fd : files)
      if (fd >= 0) ::close(fd);
  }

  void begin();
  asio::awaitable<void> take_turns();
  asio::awaitable<void> python_stacks(std::size_t index);
  asio::awaitable<void> native_stacks(std::size_t index);
  asio::awaitable<ToolOutput> run_tool(const std::vector<std::string>& argv, pid_t pid);
  void note_refusal(std::size_t index, const ToolOutput& output);

  asio::io_context& io;
  const std::vector<Target> targets;
  std::vector<std::string> environment;
  std::string python;
  std::string why;
  Tools tools;
  Instant until{};
  std::vector<int> files;
  std::vector<Evidence> evidence;
  std::deque<Step> steps;
  std::size_t runners = 0;
  std::set<HelperProcess*> running;
  std::function<void(std::vector<Evidence>)> done;
};

void StackCollector::Job::begin() {
  // The name that was started may be a link or a script that finds the right Python.
  tools = find_tools(environment, {python, executable_of(targets.front().pid)});
  until = now() + kAllLimit;
  std::string spare_dir;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    Evidence& found = evidence.emplace_back(Evidence{.rank = target.rank, .pid = target.pid});
    if (target.dir.empty() && spare_dir.empty()) spare_dir = make_temporary_dir();
    files.push_back(open_new_file(target.dir.empty() ? spare_dir : target.dir, found.file));
    if (files.back() < 0) {
      found.problem = "cannot write " + found.file + ": " +
                      boost::system::error_code(errno, boost::system::system_category()).message();
      found.file.clear();
    }
    append(files.back(), "Where local rank " + std::to_string(target.rank.value) + " (pid " +
                             std::to_string(target.pid) + ") stood at " + time_of_day() + ": " +
                             why + "\n" + program_text(target.pid) + "\n");
    steps.push_back({.native = false, .index = i});
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    steps.push_back({.native = true, .index = i});
  // One after the other in each of a few lines; whoever ends last tells.
  runners = std::min(kAtOnce, targets.size());
  for (std::size_t i = 0; i < runners; ++i)
    spawn_task(io.get_executor(), "stacks", take_turns());
}

asio::awaitable<void> StackCollector::Job::take_turns() {
  const auto self = shared_from_this();
  while (!steps.empty()) {
    const Step step = steps.front();
    steps.pop_front();
    if (step.native)
      co_await native_stacks(step.index);
    else
      co_await python_stacks(step.index);
  }
  if (--runners == 0 && done) done(std::move(evidence));
}

asio::awaitable<ToolOutput> StackCollector::Job::run_tool(const std::vector<std::string>& argv,
                                                          pid_t pid) {
  ToolOutput output;
  const Instant end = std::min(now() + kToolLimit, until);
  if (end <= now()) {
    output.text = "left out: the time for all workers together, " +
                  std::to_string(std::chrono::seconds(kAllLimit / 1s).count()) + " s, is over\n";
    co_return output;
  }
  Result<HelperProcess> helper = HelperProcess::start(argv, environment);
  if (!helper) {
    output.text = "cannot start it: " + helper.error().message() + "\n";
    co_return output;
  }
  asio::posix::stream_descriptor ended(io);
  boost::system::error_code lacks;
  const int descriptor = ::fcntl(helper->pidfd(), F_DUPFD_CLOEXEC, 3);
  if (descriptor < 0)
    lacks.assign(errno, boost::system::system_category());
  else if (ended.assign(descriptor, lacks); lacks)
    ::close(descriptor);
  if (lacks) {
    output.text = "cannot wait for it: " + lacks.message() + "\n";
    co_return output;
  }
  running.insert(&*helper);
  asio::steady_timer timer(io, end - now());
  const auto first =
      co_await (ended.async_wait(asio::posix::descriptor_base::wait_read, kNoThrow) ||
                timer.async_wait(kNoThrow));
  const bool in_time = first.index() == 0;
  running.erase(&*helper);
  output.ok = helper->finish();
  output.text = helper->output(kOutputBytesMax);
  if (!in_time) {
    output.ok = false;
    output.text += "\nstopped: it took too long\n";
    // A debugger that dies between attaching and detaching leaves the process stopped.
    std::set<pid_t> leaders;
    for (const Target& target : targets)
      leaders.insert(target.pid);
    resume_process(pid, leaders);
  }
  co_return output;
}

void StackCollector::Job::note_refusal(std::size_t index, const ToolOutput& output) {
  std::string& problem = evidence[index].problem;
  if (!problem.empty() || stack_refusal(output.text) != StackRefusal::NoPermission) return;
  problem = permission_advice();
}

asio::awaitable<void> StackCollector::Job::python_stacks(std::size_t index) {
  const Target& target = targets[index];
  const int file = files[index];
  std::string kernel = thread_table(target.pid);
  std::vector<pid_t> family = family_of(target.pid);
  if (tools.py_spy.empty()) {
    const bool is_python = python.substr(python.rfind('/') + 1).starts_with("python");
    const std::string advice =
        "py-spy is neither beside " + python + " nor in PATH, so Python's lines cannot be shown; " +
        "to have it: " + (is_python ? python : "python3") + " -m pip install py-spy";
    append_section(file, "Python stacks: none", advice);
    if (is_python) evidence[index].problem = advice;
  }
  for (std::size_t i = 0; !tools.py_spy.empty() && i <= std::min(family.size(), kChildrenMax);
       ++i) {
    const pid_t pid = i == 0 ? target.pid : family[i - 1];
    const std::vector<std::string> argv{tools.py_spy, "dump", "--full-filenames", "--pid",
                                        std::to_string(pid)};
    const ToolOutput output = co_await run_tool(argv, pid);
    const std::string whose = i == 0 ? "" : "child process " + std::to_string(pid) + ", ";
    append_section(file, whose + "Python stacks, by " + joined(argv),
                   without_commands(output.text));
    if (i > 0) continue;
    evidence[index].line = standing_line(output.text);
    if (!output.ok) note_refusal(index, output);
  }
  append_section(file, "threads in the kernel, from /proc/" + std::to_string(target.pid) + "/task",
                 kernel);
  for (std::size_t i = 0; i < std::min(family.size(), kChildrenMax); ++i)
    append_section(file,
                   "child process " + std::to_string(family[i]) +
                       ", threads in the kernel: " + program_text(family[i]),
                   thread_table(family[i]));
  if (family.size() > kChildrenMax)
    append_section(file, std::to_string(family.size() - kChildrenMax) + " child processes more",
                   "");
}

asio::awaitable<void> StackCollector::Job::native_stacks(std::size_t index) {
  const Target& target = targets[index];
  const std::string pid = std::to_string(target.pid);
  std::vector<std::vector<std::string>> ways;
  if (!tools.py_spy.empty())
    ways.push_back({tools.py_spy, "dump", "--native", "--full-filenames", "--pid", pid});
  if (!tools.eu_stack.empty()) ways.push_back({tools.eu_stack, "-p", pid});
  if (!tools.gdb.empty())
    ways.push_back({tools.gdb, "--nx", "--batch", "-p", pid, "-ex", "thread apply all bt 64"});
  for (const std::vector<std::string>& argv : ways) {
    const ToolOutput output = co_await run_tool(argv, target.pid);
    append_section(files[index], "native stacks, by " + joined(argv),
                   without_commands(output.text));
    if (output.ok && stack_refusal(output.text) == StackRefusal::None) break;
    note_refusal(index, output);
  }
  if (ways.empty())
    append_section(files[index], "native stacks: none",
                   "none of py-spy, eu-stack (package elfutils) and gdb is in PATH");
  if (!evidence[index].problem.empty())
    append_section(files[index], "what is missing", evidence[index].problem);
}

StackCollector::StackCollector(asio::io_context& io, std::vector<std::string> environment)
    : io_(io), environment_(environment_for_tools(std::move(environment))) {}

void StackCollector::collect(std::vector<Target> targets, std::string why,
                             const std::string& python, Done done) {
  if (targets.empty()) return done({});
  busy_ = true;
  const auto job = std::make_shared<Job>(io_, std::move(targets));
  job->environment = environment_;
  job->python = python;
  job->why = std::move(why);
  job->done = [this, done = std::move(done)](std::vector<Evidence> evidence) {
    busy_ = false;
    done(std::move(evidence));
  };
  job_ = job;
  job->begin();
}

void StackCollector::cancel() {
  const auto job = job_.lock();
  if (!job) return;
  job->steps.clear();
  job->until = {};  // No other program is begun.
  job->done = nullptr;
  for (HelperProcess* helper : job->running)
    helper->finish();
}

}  // namespace muster
