#!/usr/bin/env python3
"""Tests musterd's --config: the file, its errors, SIGHUP and completion. Needs only musterd."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import tcsh_lines
from support import PATIENCE_S, SOURCE, wait_for
from musterd import MUSTERD, run_musterd
from ports import free_port

# Options that name the file, or that end the program before it serves.
NOT_IN_FILE = {"help", "version", "config", "check-config", "completion"}


def options_of_help():
    text = subprocess.run([MUSTERD, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-h, )?--([a-z0-9-]+)", text, re.MULTILINE))


class ConfigTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-config-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "musterd.json")
        self.log_path = os.path.join(folder.name, "log")

    def write(self, config):
        new = self.path + ".new"
        with open(new, "w") as file:
            file.write(config if isinstance(config, str) else json.dumps(config))
        os.rename(new, self.path)

    def run_musterd(self, *options):
        return subprocess.run([MUSTERD, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def check(self, config, *options):
        """Runs --check-config on this file. Returns the exit code and the errors without the file's
        name."""
        self.write(config)
        done = self.run_musterd("--check-config", f"--config={self.path}", *options)
        prefix = f"musterd: {self.path}: "
        return done.returncode, [line.removeprefix(prefix) for line in done.stderr.splitlines()]

    def start(self, *options):
        return self.start_with(f"--config={self.path}", *options)

    def start_with(self, *options):
        self.musterd = run_musterd(self, *options, bind=None, port=None, log=self.log_path)
        return re.search(r"listening on (\S+)", self.log())[1]

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def reload(self, config=None):
        """Reloads the file. Returns the new lines of the log."""
        if config is not None:
            self.write(config)
        before = len(self.log())
        self.musterd.send_signal(signal.SIGHUP)
        wait_for(lambda: re.search("config_(reloaded|not_reloaded)", self.log()[before:]), "the reload")
        self.assertIsNone(self.musterd.poll())
        return self.log()[before:]


class File(ConfigTest):
    def test_a_reload_beside_the_end_does_not_keep_musterd(self):
        self.write({"port": 0})
        self.start()
        # Both signals wait, and the kernel then calls the handler of SIGTERM first.
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGTERM, signal.SIGCONT):
            self.musterd.send_signal(number)
        self.assertEqual(self.musterd.wait(PATIENCE_S), 0)

    def test_every_option_of_help_is_a_key(self):
        keys = options_of_help() - NOT_IN_FILE
        self.assertGreater(len(keys), 25)
        for key in keys:
            status, errors = self.check({key: {}})
            self.assertEqual((status, len(errors)), (2, 1), key)
            self.assertRegex(errors[0], f'^key "{key}": an object is not ', key)
        for key in NOT_IN_FILE:
            self.assertIn("is not known", self.check({key: "x"})[1][0])

    def test_errors_name_the_key_the_value_and_the_allowed_values(self):
        for config, error in (
                ({"port": 70000}, r'^key "port": 70000: .*0.* 65535'),
                ({"port": "x"}, r'^key "port": "x" is not a number$'),
                ({"max-keys": -3}, r'^key "max-keys": -3: .*whole number from 1 to'),
                ({"max-keys": 1.5}, r'^key "max-keys": 1.5: .*whole number from 1 to'),
                ({"lease-seconds": 0}, r'^key "lease-seconds": 0: .*seconds from 0.001 to 1e9'),
                ({"log-level": "loud"}, r'^key "log-level": loud: .*debug.*critical'),
                ({"max-total-bytes": "2T"}, r"^key \"max-total-bytes\": 2T: '2T' is no size: .* 500K, 100M or 2G$"),
                ({"max-total-bytes": 0}, r"^key \"max-total-bytes\": 0: '0' is no size"),
                ({"max-total-bytes": "99999999999G"}, r"is no size"),
                ({"bind": ["127.0.0.1", "here"]}, r'^key "bind": 127.0.0.1, here: .*numeric IPv4 or IPv6'),
                ({"c10d-allow": "10.0.0.0/99"}, r'^key "c10d-allow": 10.0.0.0/99: '),
                ({"max_keys": 3}, r'^key "max_keys" is not known; did you mean "max-keys"\?$'),
                ("{\n\"port\" 3}", r"^not JSON: line 2, column 8$"),
                ("", r"^not JSON: line 1, column 1$")):
            with self.subTest(config=config):
                status, errors = self.check(config)
                self.assertEqual((status, len(errors)), (2, 1), errors)
                self.assertRegex(errors[0], error)

    def test_all_errors_are_told(self):
        status, errors = self.check({"port": "x", "max-keys": 0, "elephant": 1})
        self.assertEqual((status, len(errors)), (2, 3), errors)

    def test_a_file_that_cannot_be_read(self):
        for path, error in ((self.path, "No such file or directory"), (os.path.dirname(self.path), "no regular file"),
                            ("/proc/self/mem", "")):
            done = self.run_musterd("--check-config", f"--config={path}")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(f"musterd: {path}: ", done.stderr)
            self.assertIn(error, done.stderr)

    def test_a_right_file_is_ok_and_nothing_begins(self):
        status, errors = self.check({"port": 0, "bind": "127.0.0.1", "state-dir": "/nowhere/at/all"})
        self.assertEqual((status, errors), (0, []))

    def test_options_that_exclude_each_other_are_an_error(self):
        done = self.run_musterd("--check-config", "--only-store", "--state-dir=/x")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("--only-store has no runs to keep", done.stderr)

    def test_access_that_is_not_enough_is_told(self):
        for options, error in ((("--c10d-allow=members",), "members are known by their token"),
                               (("--http=10.0.0.1:9400",), "without a token they would be let in"),
                               (("--rdzv-run-tokens=f",), "only with --rdzv-token-file"),
                               (("--rdzv-token-file=f", "--only-store"), "no door that asks for a token")):
            for more in ((), ("--check-config",)):
                done = self.run_musterd(*options, *more)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(error, done.stderr)

    def test_the_file_that_is_installed_as_a_template_is_right(self):
        done = self.run_musterd("--check-config", f"--config={SOURCE / 'configs/musterd.json'}")
        self.assertEqual((done.returncode, done.stdout), (0, "musterd: the configuration is ok\n"), done.stderr)

    def test_addresses_may_be_a_list(self):
        port = int(self.start_with("--bind=127.0.0.2,127.0.0.3", "--port=0").rpartition(":")[2])
        for address in ("127.0.0.2", "127.0.0.3"):
            socket.create_connection((address, port), PATIENCE_S).close()
        done = self.run_musterd("--check-config", "--bind=127.0.0.1,here")
        self.assertEqual(done.returncode, 2)
        self.assertIn("here is not a numeric IPv4 or IPv6 address", done.stderr)

    def test_the_command_line_wins(self):
        self.write({"bind": ["127.0.0.1", "::1"], "port": 0, "log-level": "error"})
        self.assertRegex(self.start("--bind=127.0.0.2", "--log-level=info"), r"^127\.0\.0\.2:")
        self.assertRegex(self.log(), r"(?m)^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ musterd\] ")

    def test_the_file_counts(self):
        port = free_port()
        self.write({"bind": ["127.0.0.1"], "port": port})
        self.assertEqual(self.start(), f"127.0.0.1:{port}")

    def test_a_musterd_with_a_bad_file_does_not_start(self):
        self.write({"port": "x"})
        done = self.run_musterd(f"--config={self.path}")
        self.assertEqual((done.returncode, done.stdout), (2, ""))


class Reload(ConfigTest):
    first = {"bind": "127.0.0.1", "port": 0, "max-connections": 100, "lease-seconds": 4}

    def setUp(self):
        super().setUp()
        self.write(self.first)
        address, port = self.start().rsplit(":", 1)
        self.address = (address, int(port))

    def connections(self, count):
        """The number of connections, of `count`, that musterd does not close at once."""
        sockets = [socket.create_connection(self.address, PATIENCE_S) for _ in range(count)]
        served = 0
        for each in sockets:
            try:
                each.sendall(b"\0" + (0x3C85F7CE).to_bytes(4, "little") + b"\x0dPING")
                served += each.recv(4) == b"PING"
            except ConnectionError:
                pass
        for each in sockets:
            each.close()
        return served

    def test_a_reload_changes_limits_and_the_log_names_them(self):
        self.assertEqual(self.connections(5), 5)
        said = self.reload({**self.first, "max-connections": 3, "log-level": "debug"})
        self.assertIn('config_changed key=max-connections from="100" to="3"', said)
        self.assertIn('config_changed key=log-level from="info" to="debug"', said)
        self.assertIn("config_reloaded changed=2 needs_restart=0", said)
        self.assertLess(self.connections(5), 5)
        self.assertIn("config_reloaded changed=2", self.reload(self.first))
        wait_for(lambda: self.connections(5) == 5, "room for five connections")

    def test_a_key_that_needs_a_restart_is_named_each_time_and_not_changed(self):
        for _ in range(2):
            said = self.reload({**self.first, "lease-seconds": 9})
            self.assertIn('config_needs_restart key=lease-seconds now="4" wanted="9"', said)
            self.assertIn("config_reloaded changed=0 needs_restart=1", said)
        self.assertIn("config_reloaded changed=0 needs_restart=0", self.reload(self.first))

    def test_a_bad_file_changes_nothing_and_the_log_says_why(self):
        said = self.reload({**self.first, "max-connections": 3, "max-keys": "many"})
        self.assertIn("config_not_reloaded", said)
        self.assertIn("max-keys", said)
        self.assertNotIn("config_changed", said)
        os.unlink(self.path)
        self.assertIn("No such file", self.reload())
        self.assertEqual(self.connections(5), 5)
        self.assertIn("config_reloaded changed=0", self.reload(self.first))

    def test_the_help_fits_80_columns_and_ends_with_the_limits(self):
        text = subprocess.run([MUSTERD, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line for line in text.splitlines() if len(line) > 79], [])
        headings = re.findall(r"^(\w+):$", text, re.MULTILINE)
        self.assertEqual(headings, ["Options", "Rendezvous", "State", "Limits"])
        for shown in ("  --http [ADDRESS:]PORT ", "  --port PORT ", "[default 29400]", "  --completion {bash|zsh|fish|tcsh}\n",
                      "usage: musterd [options]\n", "[default 16G]", "[MUSTER_RDZV_TOKEN_FILE]"):
            self.assertIn(shown, text)

    def test_a_size_may_have_a_unit(self):
        said = self.reload({**self.first, "max-total-bytes": "5M", "max-key-bytes": 16384})
        self.assertIn('config_changed key=max-total-bytes from="17179869184" to="5242880"', said)
        self.assertIn('config_changed key=max-key-bytes from="8192" to="16384"', said)
        self.assertIn("config_reloaded changed=0", self.reload({**self.first, "max-total-bytes": "5120k", "max-key-bytes": "16K"}))

    def test_every_limit_can_be_changed(self):
        text = subprocess.run([MUSTERD, "--help"], capture_output=True, text=True, check=True).stdout
        limits = text.split("Limits:\n", 1)[1].split("\n\n", 1)[0]
        names = re.findall(r"^  --([a-z0-9-]+)", limits, re.MULTILINE)
        self.assertGreater(len(names), 15)
        said = self.reload({**self.first, **{name: 77 for name in names}})
        for name in names:
            self.assertRegex(said, f"config_changed key={name} ", name)
        self.assertIn("needs_restart=0", said)


class Early(ConfigTest):
    def test_a_sighup_before_musterd_can_reload_is_a_reload(self):
        """Such as one that comes while a musterd that has lost the leadership starts its program again."""
        self.write(Reload.first)

        def pending():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
            os.kill(os.getpid(), signal.SIGHUP)
        run_musterd(self, f"--config={self.path}", bind=None, port=None, log=self.log_path, ready="config_reloaded",
                      preexec_fn=pending)


class Without(ConfigTest):
    def test_a_sighup_without_a_file_is_said_and_ends_nothing(self):
        self.start_with("--bind=127.0.0.1", "--port=0")
        self.assertIn("no --config was given", self.reload())


class Completion(unittest.TestCase):
    def test_it_knows_every_option_of_help(self):
        for shell, form in (("bash", r"--{}(?![\w-])"), ("zsh", r"'--{}(=?)\["), ("fish", r" -l {} "), ("tcsh", r"[( ]--{}[) ]")):
            script = subprocess.run([MUSTERD, "--completion", shell], capture_output=True, text=True, check=True).stdout
            for option in options_of_help():
                self.assertRegex(script, form.format(re.escape(option)), shell)
            if shell != "tcsh" and shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    @unittest.skipIf(shutil.which("tcsh") is None, "tcsh is not installed")
    def test_tcsh_completes(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "folder").mkdir()
            (pathlib.Path(folder) / "file").touch()
            script = pathlib.Path(folder) / "musterd.csh"
            with open(script, "wb") as out:
                subprocess.run([MUSTERD, "--completion", "tcsh"], stdout=out, check=True)
            shell = tcsh_lines.Shell(folder, script)
            self.addCleanup(shell.close)
            for line, wanted, unwanted in (
                    ("musterd --max-run-k", "--max-run-keys", "--bind"), ("musterd --log-level ", "critical", "--bind"),
                    ("musterd --log-level=c", "critical", "info"), ("musterd --c10d-allow ", "members", "file"),
                    ("musterd --tls-cert ", "file", "--bind"), ("musterd --state-dir ", "folder/", "file")):
                offered = shell.offered(line)
                self.assertIn(wanted, offered, line)
                self.assertNotIn(unwanted, offered, line)

    def test_bash_completes(self):
        script = subprocess.run([MUSTERD, "--completion", "bash"], capture_output=True, text=True, check=True).stdout
        ask = 'COMP_WORDS=(musterd {}); COMP_CWORD={}; _musterd; echo "${{COMPREPLY[*]}}"'
        for words, cword, expected in (("--max-run-k", 1, "--max-run-keys"), ("--log-level c", 2, "critical"), ("--c10d-allow m", 2, "members")):
            done = subprocess.run(["bash", "-c", script + ask.format(words, cword)], capture_output=True, text=True,
                                  check=True)
            self.assertEqual(done.stdout.strip(), expected, done.stderr)


class ManPage(unittest.TestCase):
    def test_it_has_every_option_of_help(self):
        page = (SOURCE / "docs/musterd.8").read_text().replace("\\-", "-")
        missing = {name for name in options_of_help() if not re.search(rf"--{name}(?![\w-])", page)}
        self.assertEqual(missing, set())


if __name__ == "__main__":
    if not os.access(MUSTERD, os.X_OK):
        print(f"skipped: MUSTERD_BIN={MUSTERD} is not there")
        sys.exit(77)
    unittest.main(verbosity=2)
