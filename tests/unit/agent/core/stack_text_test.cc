#include "agent/core/stack_text.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

// The output of py-spy 0.4.3, with shortened paths.
constexpr const char* kDump = R"dump(Process 29144: /venv/bin/python w.py
Python v3.11.7 (/opt/python/bin/python3.11)

Thread 29146 (active): "Thread-1 (loop)"
    loop (/home/a/w.py:3)
Thread 29144 (idle): "MainThread"
    Condition.wait (/opt/python/lib/python3.11/threading.py:327)
    Event.wait (/opt/python/lib/python3.11/threading.py:629)
    stuck (/home/a/w.py:5)
    <module> (/home/a/w.py:8)
)dump";

TEST_CASE("stack_text: the main thread's line, and the user's own above the library",
          "[unit][hang]") {
  const auto line = current_line(kDump);
  REQUIRE(line);
  CHECK(line->innermost == "Condition.wait (/opt/python/lib/python3.11/threading.py:327)");
  CHECK(line->own == "stuck (/home/a/w.py:5)");
  CHECK_FALSE(line->waits_for_others);
  CHECK(to_text(*line) ==
        "stuck (/home/a/w.py:5), inside Condition.wait "
        "(/opt/python/lib/python3.11/threading.py:327)");
}

TEST_CASE("stack_text: one sentence about where a process stands", "[unit][hang]") {
  CHECK(standing_text(current_line(kDump), "") ==
        "It stands at stuck (/home/a/w.py:5), inside Condition.wait "
        "(/opt/python/lib/python3.11/threading.py:327).\n");
  const std::string table =
      "thread 7 a: state R, waits in x: state S, CPU time 12 ms, waits in hrtimer_nanosleep, "
      "system call 230 0x1\n"
      "thread 8 b: state R, CPU time 0 ms, waits in -, system call running\n";
  CHECK(standing_text(std::nullopt, table) ==
        "It sleeps in the kernel's hrtimer_nanosleep; its line in Python is not known.\n");
  CHECK(standing_text(std::nullopt,
                      "thread 7 a: state R, CPU time 0 ms, waits in -, system call running\n") ==
        "It runs; its line in Python is not known.\n");
  CHECK(
      standing_text(std::nullopt,
                    "thread 7 a: state D, CPU time 0 ms, waits in rpc_wait, system call 0\n") ==
      "It waits and takes no signal in the kernel's rpc_wait; its line in Python is not known.\n");
  for (const char* text : {"", "it has ended\n", "waits in x: state ", ": state R"})
    CHECK(standing_text(std::nullopt, text) ==
          "Where it stands is not known: the parts below say why.\n");
}

TEST_CASE("stack_text: what gdb says about itself is left out", "[unit][hang]") {
  CHECK(without_gdb_chatter(R"gdb(
warning: File "/usr/lib/libstdc++.so.6-gdb.py" auto-loading has been declined by your `auto-load safe-path' set to "$debugdir".
To enable execution of this file add
	add-auto-load-safe-path /usr/lib/libstdc++.so.6-gdb.py
line to your configuration file "/root/.config/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/root/.config/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"
[New LWP 71]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
__GI___clock_nanosleep (clock_id=1) at ../sysdeps/clock_nanosleep.c:71

Thread 1 (Thread 0x7f (LWP 7) "python"):
#0  __GI___clock_nanosleep (clock_id=1) at ../sysdeps/clock_nanosleep.c:71
[Inferior 1 (process 7) detached]
)gdb") == R"gdb(__GI___clock_nanosleep (clock_id=1) at ../sysdeps/clock_nanosleep.c:71

Thread 1 (Thread 0x7f (LWP 7) "python"):
#0  __GI___clock_nanosleep (clock_id=1) at ../sysdeps/clock_nanosleep.c:71
)gdb");
  CHECK(without_gdb_chatter("").empty());
}

TEST_CASE("stack_text: native frames are not lines of Python", "[unit][hang]") {
  const auto line = current_line(R"dump(Thread 1 (idle): "MainThread"
    0x7fca45ea3e96 (/usr/lib/x86_64-linux-gnu/libc.so.6)
    PyThread_acquire_lock_timed (/opt/lib/libpython3.11.so.1.0)
    stuck (/home/a/w.py:3)
)dump");
  REQUIRE(line);
  CHECK(line->innermost == "stuck (/home/a/w.py:3)");
  CHECK(to_text(*line) == "stuck (/home/a/w.py:3)");
}

TEST_CASE("stack_text: a thread inside torch.distributed waits for others", "[unit][hang]") {
  const auto line = current_line(R"dump(Thread 1 (idle): "MainThread"
    barrier (/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:5129)
    wrapper (/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83)
    main (/home/a/train.py:40)
)dump");
  REQUIRE(line);
  CHECK(line->own == "main (/home/a/train.py:40)");
  CHECK(line->waits_for_others);
}

TEST_CASE("stack_text: a thread without a name, library frames only, and no thread at all",
          "[unit][hang]") {
  const auto nameless = current_line("Thread 0x7F (idle)\n    f (a.py:1)\n");
  REQUIRE(nameless);
  CHECK(nameless->own == "f (a.py:1)");
  const auto library = current_line("Thread 1 (idle)\n    f (/usr/lib/python3.11/a.py:1)\n");
  REQUIRE(library);
  CHECK(library->own == library->innermost);
  CHECK_FALSE(current_line(""));
  CHECK_FALSE(current_line("Thread 1 (idle): \"MainThread\"\n"));
  CHECK_FALSE(current_line("Error: Failed to get process executable name."));
  CHECK_FALSE(current_line("    f (a.py:1)\n"));  // A frame without a thread.
  CHECK_FALSE(current_line("Thread 1\n    f (a.py:)\n    (a.py:1\n    )\n"));
}

TEST_CASE("stack_text: the tools' words for a missing permission and for no Python are known",
          "[unit][hang]") {
  CHECK(stack_refusal("Permission Denied: Try running again with elevated permissions by going") ==
        StackRefusal::NoPermission);
  CHECK(stack_refusal("Could not attach to process. ptrace: Operation not permitted.") ==
        StackRefusal::NoPermission);
  CHECK(stack_refusal("Error: Failed to find a python interpreter in the process.") ==
        StackRefusal::NotPython);
  CHECK(stack_refusal(kDump) == StackRefusal::None);
}

HangSuspect suspect(int rank, Duration idle, const char* own, bool waits = false) {
  return {LocalRank{rank}, idle,
          CurrentLine{.innermost = own, .own = own, .waits_for_others = waits}};
}

TEST_CASE("stack_text: the main suspect among hung workers", "[unit][hang]") {
  SECTION("does not wait for others") {
    CHECK(main_suspect({suspect(0, 40s, "a", true), suspect(1, 10s, "b")}) == 1);
  }
  SECTION("stands where the fewest stand") {
    CHECK(main_suspect({suspect(0, 40s, "a"), suspect(1, 10s, "b"), suspect(2, 40s, "a")}) == 1);
  }
  SECTION("has been idle for longest") {
    CHECK(main_suspect({suspect(0, 30s, "a"), suspect(1, 40s, "b")}) == 1);
  }
  SECTION("has the lowest rank, when nothing is known") {
    CHECK(main_suspect({{LocalRank{3}, 30s, {}}, {LocalRank{2}, 30s, {}}}) == 1);
    CHECK(main_suspect({{LocalRank{7}, 30s, {}}}) == 0);
  }
}

TEST_CASE("stack_text: command lines are left out", "[unit][hang]") {
  CHECK(without_commands(
            "Process 7: python3 train.py --key=secret: x\nPython v3.11.2 (/usr/bin/"
            "python3.11)\n\nThread 7 (idle): \"MainThread\"\n    Process 7: f (a.py:1)\n") ==
        "Process 7\nPython v3.11.2 (/usr/bin/python3.11)\n\nThread 7 (idle): \"MainThread\"\n    "
        "Process 7: f (a.py:1)\n");
  CHECK(without_commands("").empty());
  CHECK(without_commands("Error: no such process") == "Error: no such process\n");
}

}  // namespace
}  // namespace muster
