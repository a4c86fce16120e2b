#!/usr/bin/env python3
"""Tests musterd where its log cannot be written, and where it is told to end in a bad moment."""
import fcntl
import os
import signal
import sys
import termios

from hardship import own_mounts, silent_fs
from mixed import MusterdTest
from support import PATIENCE_S, main, wait_for

PIPE_BYTES = 4096
BLOCKED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
os.execv(sys.argv[1], sys.argv[1:])
"""


class ProcessTest(MusterdTest):
    def start_musterd(self):
        """Each test starts musterd itself, with begin()."""

    def begin(self, stderr=None, prefix=(), options=()):
        self.musterd_stderr, self.musterd_prefix, self.musterd_options = stderr, prefix, options
        super().start_musterd()

    def check_job(self):
        """A job of two nodes meets at musterd, and ends."""
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.tell("finish")
        self.ends(a=0, b=0)

    def check_end(self):
        self.musterd.send_signal(signal.SIGTERM)
        self.assertEqual(self.musterd.wait(PATIENCE_S), 0)


class Log(ProcessTest):
    """musterd's log goes to its stderr."""

    def pipe(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return reader, writer

    def read_until(self, fd, text):
        found = b""
        while text not in found:
            piece = os.read(fd, PIPE_BYTES)
            self.assertTrue(piece, found)
            found += piece
        return found

    def test_a_full_pipe_stops_no_job_and_its_lines_come_later(self):
        reader, writer = self.pipe()
        self.addCleanup(os.close, reader)
        os.write(writer, b"x" * PIPE_BYTES)
        self.begin(writer)
        self.check_job()
        log = self.read_until(reader, b"run_ended")
        for line in (b"access token=no", b"node_joined", b"round_complete"):
            self.assertIn(line, log)
        self.check_end()

    def test_a_terminal_whose_output_is_suspended_stops_no_job(self):
        terminal, side_of_musterd = os.openpty()
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, side_of_musterd)
        self.begin(side_of_musterd)
        self.read_until(terminal, b"access token=no")
        termios.tcflow(side_of_musterd, termios.TCOOFF)  # As ctrl-S does.
        self.check_job()
        termios.tcflow(side_of_musterd, termios.TCOON)
        self.assertIn(b"node_joined", self.read_until(terminal, b"run_ended"))
        self.check_end()

    def test_a_full_pipe_does_not_keep_musterd_from_ending(self):
        reader, writer = self.pipe()
        self.addCleanup(os.close, reader)
        os.write(writer, b"x" * PIPE_BYTES)
        self.begin(writer)
        self.check_end()

    def test_a_reader_that_has_ended(self):
        reader, writer = self.pipe()
        self.begin(writer)
        os.close(reader)
        self.check_job()
        self.check_end()

    def test_a_limit_of_the_size_of_files(self):
        log = os.open(self.dir / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.addCleanup(os.close, log)
        self.begin(log, prefix=["prlimit", "--fsize=200"])
        self.check_job()
        self.check_end()
        self.assertEqual((self.dir / "log").stat().st_size, 200)

    def test_without_stderr_nothing_is_written_into_another_file(self):
        state = self.dir / "state"
        self.begin(prefix=["sh", "-c", 'exec "$@" 2>&-', "-"], options=[f"--state-dir={state}"])
        self.check_job()
        self.check_end()
        for file in state.iterdir():
            self.assertNotIn(b"node_joined run=", file.read_bytes(), file)


class End(ProcessTest):
    def test_signals_that_the_parent_has_blocked(self):
        self.begin(prefix=[sys.executable, "-c", BLOCKED])
        self.check_end()

    def test_storage_that_does_not_answer(self):
        if not silent_fs.available():
            self.skipTest("needs root and /dev/fuse")
        fs = silent_fs.SilentFs(self.dir / "silent").__enter__()
        self.addCleanup(fs.__exit__)
        self.begin(options=[f"--state-dir={fs.folder}/state"])
        self.addCleanup(fs.speak)  # First of all: the kernel ends no process that waits for an answer.
        fs.fall_silent()
        self.node("a", 1)  # The new run must be recorded.
        wait_for(lambda: "node_joined" in self.read("err.musterd1"), "the node")
        self.musterd.send_signal(signal.SIGTERM)
        wait_for(lambda: "does the storage of --state-dir answer?" in self.read("err.musterd1"), "the end")
        fs.speak()
        self.assertEqual(self.musterd.wait(PATIENCE_S), 1)


if __name__ == "__main__":
    if silent_fs.available():
        own_mounts()
    main()
