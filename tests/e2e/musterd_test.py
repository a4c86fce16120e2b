#!/usr/bin/env python3
"""Tests musterd as a program: its line on stdout, exit codes, errors, descriptors and signals.

musterd_test.py MUSTERD [name...]
"""
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time

MUSTERD = sys.argv[1]
HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE)
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def is_sanitized():
    with open(MUSTERD, "rb") as program:
        return b"__asan_init" in program.read()


class Musterd:
    """A running musterd. Its stderr goes to a pipe, which is read when the log is asked for."""

    def __init__(self, *options, **popen):
        if not any(option.startswith("--port") for option in options):
            options = (*options, "--port=0")  # The default belongs to one musterd of a machine.
        self.process = subprocess.Popen([MUSTERD, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        bufsize=0, **popen)
        self.log = b""
        line = self.process.stdout.readline().decode()
        assert line.startswith("musterd: listening on "), (line, self.process.stderr.read())
        self.where = line.split()[-1]
        self.port = int(self.where.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.wait()

    def wait_for_log(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.log.decode():
            ready = select.select([self.process.stderr], [], [], max(0, end - time.monotonic()))[0]
            assert ready, "no %r in the log within %d s: %s" % (text, seconds, self.log.decode())
            piece = os.read(self.process.stderr.fileno(), 65536)
            assert piece, "musterd has closed its stderr: " + self.log.decode()
            self.log += piece
        return self.log.decode()

    def connect(self, host="127.0.0.1"):
        client = socket.create_connection((host, self.port), 20)
        client.sendall(HELLO)
        return client


def ping(client):
    client.settimeout(20)
    client.sendall(b"\x0dPING")
    return client.recv(4, socket.MSG_WAITALL) == b"PING"


def run(*options, **popen):
    return subprocess.run([MUSTERD, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=30, **popen)


@test
def one_line_then_sigterm_ends_it_cleanly():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Musterd("--port", "0") as server:
            client = server.connect()
            assert ping(client)
            server.process.send_signal(number)
            assert server.process.wait(20) == 0
            assert server.process.stdout.read() == b"", "more than one line on stdout"
            assert client.recv(1) == b""


@test
def version_and_help():
    assert run("--version").stdout.startswith("musterd 0.")
    shown = run("--help")
    assert shown.returncode == 0
    for option in ("--bind", "--port", "--max-value-bytes", "--validate-seconds", "--log-level"):
        assert option in shown.stdout, option


@test
def bad_usage_is_2_and_says_what():
    for options in (["--port", "70000"], ["--port", "x"], ["--bind", "localhost"], ["--nonsense"],
                    ["--log-level", "loud"], ["--validate-seconds", "0"], ["--max-keys", "-1"],
                    ["--validate-seconds", "nan"], ["--lease-seconds", "inf"], ["--max-keys", "0"],
                    ["--max-keys", "99999999999999999999999"], ["--max-runs", "5x"]):
        result = run(*options)
        assert result.returncode == 2, (options, result)
        assert result.stdout == "" and options[-1] in result.stderr or options[0] in result.stderr, result


@test
def a_taken_port_is_1_and_names_address_port_and_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--bind", "127.0.0.1", "--port", str(port))
        assert result.returncode == 1, result
        assert "127.0.0.1:%d" % port in result.stderr and "ss -ltnp" in result.stderr, result.stderr
    result = run("--bind", "192.0.2.1", "--port", "0")
    assert result.returncode == 1 and "192.0.2.1" in result.stderr and "ip address" in result.stderr, result.stderr


@test
def both_families_by_default_and_each_alone():
    with Musterd("--port", "0") as server:
        assert server.where == "[::]:%d" % server.port
        assert ping(server.connect("127.0.0.1")) and ping(server.connect("::1"))
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")):
        with Musterd("--bind", host, "--port", "0") as server:
            assert server.where == "%s:%d" % (shown, server.port)
            assert ping(server.connect(host))
    with Musterd("--bind", "127.0.0.1", "--bind", "::1", "--port", "0") as server:
        assert ping(server.connect("127.0.0.1")) and ping(server.connect("::1"))
    with Musterd("--bind", "::", "--bind", "0.0.0.0", "--port", "0") as server:
        assert ping(server.connect("127.0.0.1")) and ping(server.connect("::1"))


# Runs in a network namespace with few ports to choose from, two of which are taken for IPv4. Linux
# first tries the odd ports of the lower half of the range.
FEW_PORTS = """
import pathlib, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40015")
taken = [socket.create_server(("127.0.0.1", port)) for port in (40001, 40003)]
for _ in range(12):
    musterd = subprocess.Popen([sys.argv[1], "--bind=::", "--bind=0.0.0.0", "--port=0"], stdout=subprocess.PIPE,
                               text=True)
    print(musterd.stdout.readline(), end="")
    musterd.kill()
    musterd.wait()
"""


@test
def a_port_that_one_family_lacks_is_not_taken():
    if os.geteuid() != 0:
        return "a network namespace needs root"
    done = subprocess.run(["unshare", "--net", sys.executable, "-c", FEW_PORTS, MUSTERD], capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.count("musterd: listening on [::]:400") == 12, done.stderr


@test
def alone_it_listens_where_nodes_look():
    if os.geteuid() != 0:
        return "a network namespace needs root"
    with subprocess.Popen(["unshare", "--net", MUSTERD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as server:
        assert server.stdout.readline().endswith(":29400\n")
        server.kill()


@test
def a_listening_socket_is_inherited_as_from_systemd():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = 'exec 3<&%d; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0" --port 1' % listener.fileno()
    process = subprocess.Popen(["bash", "-c", script, MUSTERD], pass_fds=[listener.fileno()],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "musterd: listening on 127.0.0.1:%d\n" % port
        client = socket.create_connection(("127.0.0.1", port), 20)
        client.sendall(HELLO)
        assert ping(client)
    finally:
        process.kill()
        process.wait()
    for count in ("99999999", "1x", "-1"):
        script = 'export LISTEN_FDS=%s LISTEN_PID=$$; exec "$0" --port 0' % count
        done = subprocess.run(["bash", "-c", script, MUSTERD], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and "LISTEN_FDS is '%s'" % count in done.stderr, done
    other = run("--port", "0", "--bind", "192.0.2.1", env=dict(os.environ, LISTEN_FDS="1", LISTEN_PID="1"))
    assert other.returncode == 1, "took descriptors that were meant for another process"


@test
def out_of_descriptors_is_named_costs_no_cpu_and_passes():
    if is_sanitized():
        return "UBSan checks objects with a pipe, and takes a failure of that for a wrong object"

    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    with Musterd("--bind", "127.0.0.1", "--port", "0", preexec_fn=few_descriptors) as server:
        # The kernel accepts more connections than musterd has descriptors.
        clients = [server.connect() for _ in range(40)]
        server.wait_for_log("ulimit -n")
        assert ping(clients[0]), "those who were there first are served"
        log = server.log
        stat = "/proc/%d/stat" % server.process.pid

        def cpu():
            return sum(map(int, open(stat).read().rsplit(")", 1)[1].split()[11:13]))
        before = cpu()
        end = time.monotonic() + 1
        # Only the CPU time over an interval shows whether musterd is busy.
        while time.monotonic() < end:
            assert ping(clients[0])
            select.select([], [], [], 0.05)
        assert cpu() - before < 50, "busy while it is out of descriptors"
        for client in clients[:32]:
            client.close()
        assert all(ping(client) for client in clients[32:]), "those who had to wait are served now"
        assert log.count(b"ulimit") < 20


@test
def ten_thousand_clients_connect_at_once():
    clients_max = 10000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < clients_max + 100:
        return "only %d descriptors are allowed here (ulimit -Hn)" % hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (clients_max + 100, hard))
    with Musterd("--bind", "127.0.0.1", "--port", "0", "--log-level", "info") as server:
        waiting, poll = {}, select.epoll()
        for _ in range(clients_max):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            poll.register(client, select.EPOLLOUT)
            waiting[client.fileno()] = client
        kept = []
        # The kernel repeats for up to some seconds the handshakes for which the backlog had no
        # room.
        while waiting:
            ready = poll.poll(60)
            assert ready, "%d of %d clients have no answer" % (len(waiting), clients_max)
            for fd, event in ready:
                if event & select.EPOLLOUT:
                    waiting[fd].send(HELLO + b"\x0dPING")
                    poll.modify(fd, select.EPOLLIN)
                else:
                    assert waiting[fd].recv(4) == b"PING", "a client was turned away"
                    poll.unregister(fd)
                    kept.append(waiting.pop(fd))
        assert len(kept) == clients_max
        for client in kept:
            client.close()


@test
def many_bad_clients_do_not_flood_the_log():
    with Musterd("--bind", "127.0.0.1", "--port", "0") as server:
        for _ in range(1000):
            client = socket.create_connection(("127.0.0.1", server.port), 20)
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
            client.close()
        server.process.send_signal(signal.SIGTERM)
        log = server.process.stderr.read().decode()
        lines = [line for line in log.splitlines() if "not VALIDATE" in line]
        assert 1 <= len(lines) < 500, len(lines)
        assert "127.0.0.1:" in lines[0]


def main():
    wanted = sys.argv[2:]
    for function in TESTS:
        if wanted and function.__name__ not in wanted:
            continue
        print("      " + function.__name__, flush=True)
        skipped = function()
        print("skip  %s: %s" % (function.__name__, skipped) if skipped else "ok    " + function.__name__, flush=True)


if __name__ == "__main__":
    main()
