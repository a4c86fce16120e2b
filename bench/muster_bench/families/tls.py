"""The cost of TLS: the same nodes at a musterd with TLS and at one without, in turn.

The program rendezvous_load simulates the nodes, each with its own connection. The column muster is
the musterd with TLS, and the column limit is the one without. Both ends run on this machine. So the
seconds include the nodes' part of the handshakes. The server's CPU time does not.
"""
import functools
import pathlib
import shutil
import subprocess
import tempfile

from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, MeasureError, Quantity, Row
from ..server import Server
from . import rendezvous

NAME = "tls"
ABOUT = "1,000 nodes join and restart at a musterd with TLS and at one without"
ORDER = 76

NODES = 1000
QUICK_NODES = 100
RESTARTS = 2
LIMIT_S = 120.0


def make_certificate(folder):
    """Makes a self-signed certificate, which is its own CA. Returns (certificate, key)."""
    certificate, key = folder / "server.pem", folder / "server.key"
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-noenc", "-subj", "/CN=bench", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)], capture_output=True, text=True)
    if done.returncode != 0:
        raise MeasureError(f"openssl ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    key.chmod(0o600)
    return certificate, key


def sample(programs, count, certificate):
    server = [programs.musterd.path, "--bind", "127.0.0.1", "--port", "0"]
    nodes = [programs.native("rendezvous_load").path]
    if certificate:
        server += ["--tls-cert", certificate[0], "--tls-key", certificate[1]]
        nodes += ["--tls-ca", certificate[0]]
    with Server(server) as musterd:
        result = rendezvous.run_nodes(
            [*nodes, "--port", musterd.port, "--pid", musterd.pid, "--restarts", RESTARTS,
             "--limit-seconds", LIMIT_S, "--nodes", count], LIMIT_S)
        musterd.require_alive()
    join, restart = result["join"], result["restarts"][-1]
    return {"join_s": join["seconds"], "restart_s": restart["seconds"],
            "join_cpu_us": join["server_cpu_s"] * 1e6 / count,
            "kb_per_node": (result["rss_mb"] - result["rss_before_mb"]) * 1e3 / count}


def quantities(count):
    who = f"{count:,} nodes"
    return [
        Quantity("join_s", "s",
                 f"{who} come by TLS at once, until the last knows its rank; limit: without TLS"),
        Quantity("restart_s", "s", f"one of {who} fails and all join again; limit: without TLS"),
        Quantity("join_cpu_us", "µs", f"{who} join: musterd's CPU time for each; limit: without TLS"),
        Quantity("kb_per_node", "kB", f"{who}: musterd's memory for each; limit: without TLS"),
    ]


def with_ratio(count, row):
    """Returns the row with its name in the table, and a row with the ratio of TLS to plain TCP."""
    name = f"tls.{count}.{row.quantity.name}"
    secure, plain = row.median(MUSTER), row.median(LIMIT)
    ratio = [secure / plain] if secure is not None and plain else []
    why = {} if ratio else dict(row.why)
    return [Row(Quantity(name, row.quantity.unit, row.quantity.what), row.samples, row.why),
            Row(Quantity(name + "_ratio", "", f"the same with TLS, times without: {name}"),
                {MUSTER: ratio}, why)]


def measure(bench):
    count = QUICK_NODES if bench.quick else NODES
    programs = bench.programs
    needed = (programs.musterd, programs.native("rendezvous_load"))
    why_not = next((program.why_not for program in needed if not program), "")
    if not why_not and shutil.which("openssl") is None:
        why_not = "there is no openssl, which makes the certificate"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-bench-tls-"))
    try:
        certificate = None if why_not else make_certificate(folder)
        contenders = [
            Contender(role, None if why_not else functools.partial(sample, programs, count, files),
                      why_not=why_not)
            for role, files in ((LIMIT, None), (MUSTER, certificate))]
        rows = interleave(quantities(count), contenders, bench.rounds(5), bench.say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [found for row in rows for found in with_ratio(count, row)]
