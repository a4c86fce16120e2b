"""A restart of musterd under thousands of nodes that come by TLS: all of them come back at once, and
each handshake costs a signature. A node gives up a try that is not answered, as an agent does.
"""
import pathlib
import shutil
import tempfile

from ..interleave import Contender, interleave
from ..model import MUSTER, Quantity
from .musterd import TestBed
from .tls import make_certificate

NAME = "tls_herd"
ABOUT = "musterd killed under 4,000 nodes that come by TLS"
ORDER = 77

NODES = 4000
QUICK_NODES = 200


def sample(test_bed, nodes):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        certificate, key = make_certificate(pathlib.Path(folder))
        result = test_bed.resume_at(folder, nodes, ("--tls-cert", certificate, "--tls-key", key),
                                    ("--tls-ca", certificate))
    return {"tls_herd.resume_s": result["resume_s"]}


def measure(bench):
    nodes = QUICK_NODES if bench.quick else NODES
    load, musterd = bench.programs.native("musterd_load"), bench.programs.musterd
    why_not = next((one.why_not for one in (musterd, load) if not one), "")
    if not why_not and shutil.which("openssl") is None:
        why_not = "there is no openssl, which makes the certificate"
    test_bed = TestBed(pathlib.Path(musterd.path or ""), pathlib.Path(load.path or ""), {})
    quantity = Quantity("tls_herd.resume_s", "s",
                        f"kill -9 of musterd under {nodes:,} nodes that come by TLS; it is started "
                        "again at once; until the last node has resumed")
    contender = Contender(MUSTER, None if why_not else lambda: sample(test_bed, nodes),
                          why_not=why_not)
    return interleave([quantity], [contender], bench.rounds(3), bench.say)
