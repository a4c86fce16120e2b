#!/usr/bin/env python3
"""Storage hangs under files that the agent uses beside the job itself: the agent's loop goes on, and one signal ends
the job."""
import signal

from hardship import HardshipTest, own_mounts, silent_fs
from support import PATIENCE_S, agent_of, children, main, wait_for

WORKER = "#!/bin/sh\necho x >> ready\nexec /bin/sleep 1000\n"


class ControlThread(HardshipTest):
    def end_by_one_signal(self, process):
        """An agent whose loop hangs would not act on it, and the shim would have to end the job."""
        process.send_signal(signal.SIGTERM)
        self.end_of(process, PATIENCE_S)
        err = self.read("err")
        self.assertNotIn("stopped answering", err)
        self.assertNotIn("the agent", err)

    def environment(self, **more):
        more.setdefault("PATH", str(self.dir))  # No tool is there: they would only take time.
        return super().environment(**more)

    def ask(self, process, text):
        process.send_signal(signal.SIGUSR2)
        wait_for(lambda: text in self.read("err"), text)

    def test_where_stacks_are_written(self):
        (self.dir / "tmp").rmdir()
        (self.dir / "tmp").symlink_to(self.mount())  # TMPDIR.
        process = self.start("--no-python", "--log-dir=/dev/null", self.script("worker.sh", WORKER))
        self.ready(1)
        self.fs.fall_silent()
        self.ask(process, "the stacks cannot be written: storage does not answer (")
        self.ask(process, "the stacks cannot be written: storage does not answer since the last time")
        self.end_by_one_signal(process)

    def test_while_stacks_are_written(self):
        folder = self.mount(never={silent_fs.WRITE})
        process = self.start("--no-python", f"--log-dir={folder}", self.script("worker.sh", WORKER))
        self.ready(1)
        self.ask(process, "the stacks cannot be written: storage does not answer (")
        self.assertIn("stacks.0.txt", self.read("err"))
        self.end_by_one_signal(process)

    def test_where_the_tools_are_looked_for(self):
        folder = self.mount()
        process = self.start("--no-python", "--log-dir=logs", self.script("worker.sh", WORKER),
                             env={"PATH": f"{folder}:/bin:/usr/bin"})
        self.ready(1)
        self.fs.fall_silent()
        self.ask(process, "stacks.0.txt")
        text = next(self.dir.glob("logs/*/*/0/stacks.0.txt")).read_text()
        self.assertIn("cannot look for py-spy, eu-stack and gdb in PATH", text)
        self.assertIn("threads in the kernel", text)
        self.end_by_one_signal(process)

    def test_below_a_tool(self):
        folder = self.mount(never={silent_fs.READ})
        for tool in ("py-spy", "eu-stack", "gdb"):
            (folder / tool).touch(0o755)
        process = self.start("--no-python", "--log-dir=logs", self.script("worker.sh", WORKER),
                             env={"PATH": f"{folder}:/bin:/usr/bin"})
        self.ready(1)
        process.send_signal(signal.SIGUSR2)
        wait_for(lambda: children(agent_of(process.pid)), "the tool")
        self.end_by_one_signal(process)

    def test_where_the_program_of_logs_specs_is_looked_for(self):
        folder = self.mount()
        self.fs.fall_silent()
        self.load_specs({"PYTHON_EXEC": f"{folder}/python"})

    def test_below_the_program_of_logs_specs(self):
        folder = self.mount(never={silent_fs.READ})
        (folder / "python").touch(0o755)
        self.load_specs({"PYTHON_EXEC": f"{folder}/python"})

    def load_specs(self, env):
        process = self.start("--standalone", "--logs-specs=flat", self.script("x.py", ""),
                             env=env | {"LOGLEVEL": "INFO"})
        wait_for(lambda: "Rendezvous'ing worker group" in self.read("err"), "the job's begin")
        self.end_by_one_signal(process)

    def test_where_the_socket_of_the_worker_channel_is(self):
        folder = self.mount(never={silent_fs.MKNOD})
        process = self.start("--no-python", f"--log-dir={folder}", self.script("worker.sh", WORKER))
        wait_for(lambda: "storage does not answer" in self.read("err") or self.read("ready"), "a word about it")
        self.assertEqual(self.read("ready"), "", self.read("err"))
        self.end_by_one_signal(process)
        self.assertEqual(self.read("ready"), "")


if __name__ == "__main__":
    if silent_fs.available():
        own_mounts()
    main()
