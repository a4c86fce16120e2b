#include "agent/io/stack_collector.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

#include "agent/io/helper_end.h"
#include "agent/io/stack_files.h"
#include "agent/posix/find_program.h"
#include "agent/posix/helper_process.h"
#include "agent/posix/process_activity.h"
#include "base/net/bounded_work.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using namespace std::chrono_literals;

namespace {

constexpr Duration kToolLimit = 15s;  // gdb reads the symbols of some hundred megabytes.
constexpr Duration kAllLimit = 30s;
constexpr Duration kSearchLimit = 5s;    // For the tools. A folder of PATH may be on dead storage.
constexpr std::size_t kAtOnce = 4;       // Tools. Each takes a CPU and some 100 MB.
constexpr std::size_t kChildrenMax = 8;  // Of one worker, with Python stacks.
constexpr std::size_t kOutputBytesMax = 4 << 20;

// Variables that would change what the tools do: gdb contains a Python and a network client.
constexpr std::array<std::string_view, 7> kRemovedVariables{
    "LD_PRELOAD=",    "LD_LIBRARY_PATH=", "PYTHONHOME=",    "PYTHONPATH=",
    "PYTHONSTARTUP=", "DEBUGINFOD_URLS=", "RUST_BACKTRACE="};

std::vector<std::string> environment_for_tools(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& variable) {
    return std::any_of(kRemovedVariables.begin(), kRemovedVariables.end(),
                       [&variable](std::string_view name) { return variable.starts_with(name); });
  });
  environment.emplace_back("RUST_BACKTRACE=0");
  return environment;
}

struct Tools {
  std::string py_spy;  // The tools' paths; empty: not found.
  std::string gdb;
  std::string eu_stack;
  std::string problem;  // Why the search failed.
};

/// `pythons` are programs: py-spy may be in the folder of one of them.
Tools find_tools(const std::vector<std::string>& environment,
                 const std::vector<std::string>& pythons) {
  const std::string_view path = path_variable(environment);
  const auto find = [path](const std::string& name) {
    const Result<std::string> found = find_program(name, path);
    return found ? *found : std::string();
  };
  Tools tools{.gdb = find("gdb"), .eu_stack = find("eu-stack")};
  for (const std::string& python : pythons)
    if (const std::size_t slash = python.rfind('/');
        slash != std::string::npos && tools.py_spy.empty())
      tools.py_spy = find(python.substr(0, slash) + "/py-spy");
  if (tools.py_spy.empty()) tools.py_spy = find("py-spy");
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

struct ToolOutput {
  bool ok = false;
  std::string text;
};

std::string section(const std::string& title, std::string_view text) {
  std::string whole = "\n== " + title + "\n";
  whole += text;
  if (!text.empty() && text.back() != '\n') whole += '\n';
  return whole;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : " ") + (word.find(' ') == word.npos ? word : "'" + word + "'");
  return text;
}

/// Reads the thread table on a thread of its own: it takes long for a process with many threads.
asio::awaitable<std::string> kernel_threads(pid_t pid) {
  const auto table = std::make_shared<std::string>();
  std::function<void()> work = [table, pid] { *table = thread_table(pid); };
  const boost::system::error_code failed = co_await run_in_time(std::move(work), kToolLimit);
  co_return failed ? "cannot be read: " + failed.message() + "\n" : *table;
}

}  // namespace

/// One collection: the steps that are left, and the evidence so far.
struct StackCollector::Job : std::enable_shared_from_this<StackCollector::Job> {
  struct Step {
    bool native = false;
    std::size_t index = 0;
  };

  Job(asio::io_context& io_context, std::vector<Target> all)
      : io(io_context), targets(std::move(all)) {}

  asio::awaitable<void> begin();
  asio::awaitable<void> locate_tools();
  asio::awaitable<void> run_steps();
  asio::awaitable<void> python_stacks(std::size_t index);
  asio::awaitable<void> native_stacks(std::size_t index);
  asio::awaitable<ToolOutput> run_tool(const std::vector<std::string>& argv, pid_t pid);
  void record_refusal(std::size_t index, const ToolOutput& output);
  std::string py_spy_missing_text(std::size_t index);

  asio::io_context& io;
  const std::vector<Target> targets;
  std::vector<std::string> environment;
  std::string python;
  std::string why;
  Tools tools;
  std::string python_advice;  // The files say how to get Python's lines; empty: they do not.
  Instant until{};
  std::shared_ptr<StackFiles> files;
  std::vector<Evidence> evidence;
  std::deque<Step> steps;
  std::size_t runners = 0;
  std::set<HelperProcess*> running;
  std::function<void(std::vector<Evidence>)> done;
};

asio::awaitable<void> StackCollector::Job::locate_tools() {
  // `python` may be a link, or a script that finds the right Python: the executable is tried, too.
  const std::vector<std::string> pythons{python, executable_of(targets.front().pid)};
  const auto found = std::make_shared<Tools>();
  std::function<void()> work = [found, pythons, variables = environment] {
    *found = find_tools(variables, pythons);
  };
  const boost::system::error_code failed = co_await run_in_time(std::move(work), kSearchLimit);
  if (failed)
    tools.problem = "cannot look for py-spy, eu-stack and gdb in PATH and beside " + python + ": " +
                    failed.message() + " (is one of these folders on storage that is gone?)";
  else
    tools = std::move(*found);
}

asio::awaitable<void> StackCollector::Job::begin() {
  const auto self = shared_from_this();
  std::vector<std::string> dirs;
  dirs.reserve(targets.size());
  for (const Target& target : targets)
    dirs.push_back(target.dir);
  co_await files->open(std::move(dirs));
  co_await locate_tools();
  until = now() + kAllLimit;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    evidence.push_back({.rank = target.rank, .pid = target.pid, .problem = files->problem(i)});
    std::string head = "Where local rank " + std::to_string(target.rank.value) + " (pid " +
                       std::to_string(target.pid) + ") stood at " + time_of_day() + ": " + why +
                       "\n" + program_text(target.pid) + "\n";
    co_await files->append(i, std::move(head));
    steps.push_back({.native = false, .index = i});
  }
  if (!done) co_return;  // cancel() was called meanwhile.
  for (std::size_t i = 0; i < targets.size(); ++i)
    steps.push_back({.native = true, .index = i});
  // A few coroutines share the steps. The last one to end calls `done`.
  runners = std::min(kAtOnce, targets.size());
  for (std::size_t i = 0; i < runners; ++i)
    spawn_task(io.get_executor(), "stacks", run_steps());
}

asio::awaitable<void> StackCollector::Job::run_steps() {
  const auto self = shared_from_this();
  while (!steps.empty()) {
    const Step step = steps.front();
    steps.pop_front();
    if (step.native)
      co_await native_stacks(step.index);
    else
      co_await python_stacks(step.index);
  }
  if (--runners > 0) co_return;
  co_await files->close();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    evidence[i].file = files->path(i);
    if (evidence[i].problem.empty()) evidence[i].problem = files->problem(i);
  }
  if (done) done(std::move(evidence));
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
  const auto cannot_start = [](const boost::system::error_code& why_not) {
    return ToolOutput{.ok = false, .text = "cannot start it: " + why_not.message() + "\n"};
  };
  Result<HelperProcess> helper = HelperProcess::start(argv, environment);
  if (!helper) co_return cannot_start(helper.error());
  Result<asio::posix::stream_descriptor> ended = watch_end(io, *helper);
  if (!ended) {
    output.text = "cannot wait for it: " + ended.error().message() + "\n";
    co_return output;
  }
  running.insert(&*helper);
  asio::steady_timer timer(io, end - now());
  const auto first =
      co_await (ended->async_wait(asio::posix::descriptor_base::wait_read, kNoThrow) ||
                timer.async_wait(kNoThrow));
  const bool in_time = first.index() == 0;
  running.erase(&*helper);
  if (const auto why_not = helper->start_error()) co_return cannot_start(why_not);
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

void StackCollector::Job::record_refusal(std::size_t index, const ToolOutput& output) {
  std::string& problem = evidence[index].problem;
  if (!problem.empty() || stack_refusal(output.text) != StackRefusal::NoPermission) return;
  problem = permission_advice();
}

std::string StackCollector::Job::py_spy_missing_text(std::size_t index) {
  const bool is_python = python.substr(python.rfind('/') + 1).starts_with("python");
  const std::string advice =
      !tools.problem.empty() ? tools.problem
                             : "py-spy is neither beside " + python +
                                   " nor in PATH, so Python's lines cannot be shown; to have it: " +
                                   (is_python ? python : "python3") + " -m pip install py-spy";
  if (is_python && evidence[index].problem.empty()) evidence[index].problem = advice;
  python_advice = advice;
  return section("Python stacks: none", advice);
}

asio::awaitable<void> StackCollector::Job::python_stacks(std::size_t index) {
  const Target& target = targets[index];
  const std::string kernel = co_await kernel_threads(target.pid);
  const std::vector<pid_t> family = family_of(target.pid);
  std::string text;
  if (tools.py_spy.empty()) text = standing_text(std::nullopt, kernel) + py_spy_missing_text(index);
  for (std::size_t i = 0; !tools.py_spy.empty() && i <= std::min(family.size(), kChildrenMax);
       ++i) {
    const pid_t pid = i == 0 ? target.pid : family[i - 1];
    const std::vector<std::string> argv{tools.py_spy, "dump", "--full-filenames", "--pid",
                                        std::to_string(pid)};
    const ToolOutput output = co_await run_tool(argv, pid);
    const std::string whose = i == 0 ? "" : "child process " + std::to_string(pid) + ", ";
    if (i == 0) evidence[index].line = current_line(output.text);
    if (i == 0) text = standing_text(evidence[index].line, kernel);
    text += section(whose + "Python stacks, by " + joined(argv), without_commands(output.text));
    co_await files->append(index, std::exchange(text, {}));
    if (i == 0 && !output.ok) record_refusal(index, output);
  }
  text +=
      section("threads in the kernel, from /proc/" + std::to_string(target.pid) + "/task", kernel);
  for (std::size_t i = 0; i < std::min(family.size(), kChildrenMax); ++i) {
    const std::string table = co_await kernel_threads(family[i]);
    text += section("child process " + std::to_string(family[i]) +
                        ", threads in the kernel: " + program_text(family[i]),
                    table);
  }
  if (family.size() > kChildrenMax)
    text += section(std::to_string(family.size() - kChildrenMax) + " child processes more", "");
  co_await files->append(index, std::move(text));
}

asio::awaitable<void> StackCollector::Job::native_stacks(std::size_t index) {
  const Target& target = targets[index];
  const std::string pid = std::to_string(target.pid);
  std::vector<std::vector<std::string>> ways;
  if (!tools.py_spy.empty())
    ways.push_back({tools.py_spy, "dump", "--native", "--full-filenames", "--pid", pid});
  if (!tools.eu_stack.empty()) ways.push_back({tools.eu_stack, "-p", pid});
  if (!tools.gdb.empty())
    ways.push_back({tools.gdb, "-q", "--nx", "--batch", "-iex", "set auto-load python-scripts off",
                    "-iex", "set debuginfod enabled off", "-p", pid, "-ex",
                    "thread apply all bt 64"});
  std::string text;
  for (const std::vector<std::string>& argv : ways) {
    const ToolOutput output = co_await run_tool(argv, target.pid);
    const bool is_gdb = argv.front() == tools.gdb;
    text = section(is_gdb ? "native stacks, by " + tools.gdb : "native stacks, by " + joined(argv),
                   without_commands(is_gdb ? without_gdb_chatter(output.text) : output.text));
    co_await files->append(index, std::exchange(text, {}));
    if (output.ok && stack_refusal(output.text) == StackRefusal::None) break;
    record_refusal(index, output);
  }
  if (ways.empty())
    text = section("native stacks: none",
                   !tools.problem.empty()
                       ? tools.problem
                       : "none of py-spy, eu-stack (package elfutils) and gdb is in PATH");
  // The advice about py-spy is in the file already.
  if (!evidence[index].problem.empty() && evidence[index].problem != python_advice)
    text += section("what is missing", evidence[index].problem);
  co_await files->append(index, std::move(text));
}

StackCollector::StackCollector(asio::io_context& io, std::vector<std::string> environment)
    : io_(io),
      environment_(environment_for_tools(std::move(environment))),
      files_(std::make_shared<StackFiles>()) {}

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
  job->files = files_;
  job_ = job;
  spawn_task(io_.get_executor(), "stacks", job->begin());
}

void StackCollector::cancel() {
  const auto job = job_.lock();
  if (!job) return;
  job->steps.clear();
  job->until = {};  // No other tool is started.
  job->done = nullptr;
  for (HelperProcess* helper : job->running)
    helper->finish();
}

}  // namespace muster
