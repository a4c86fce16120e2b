"""What the tests with the real torchrun share: jobs with both kinds of nodes, hosted by one of them
or by musterd."""
import os
import signal
import socket
import subprocess

from nodes import REACH, TORCH_PYTHON, NodesTest
from musterd import run_musterd
from support import PATIENCE_S, wait_for

TORCHRUN = [TORCH_PYTHON, "-m", "torch.distributed.run"]
# musterd loses a node that it has not heard for this long. No node of a test is off the CPU for the long lease. The short
# one is for tests that wait for its end.
LONG_LEASE_S, SHORT_LEASE_S = 20, 2


def have_torch():
    return os.access(TORCH_PYTHON, os.X_OK)


# Reads the state of a run as a torchrun node does, until a condition holds.
LOOK = """
import pickle, sys, time
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
port, run_id, condition, bound_s = sys.argv[1:]
backend = C10dRendezvousBackend(TCPStore("127.0.0.1", int(port), is_master=False), run_id)
end = time.monotonic() + float(bound_s)
while True:
    state = pickle.loads(backend.get_state()[0])
    if eval(condition):
        break
    if time.monotonic() > end:
        sys.exit(f"never {condition}, at last {vars(state)}")
    time.sleep(0.1)
"""


class TorchrunTest(NodesTest):
    """The nodes t, u and v are torchrun's."""
    launchers = {tag: TORCHRUN for tag in ("t", "u", "v")}

    def environment(self, **more):
        path = os.pathsep.join([os.path.dirname(TORCH_PYTHON), os.environ["PATH"]])
        return super().environment(PATH=path, **more)

    def state_is(self, condition):
        """Waits until a Python expression about `state`, in torch's own class, is true."""
        done = subprocess.run([TORCH_PYTHON, "-c", LOOK, str(self.port), "job", condition, str(PATIENCE_S)],
                              capture_output=True, text=True, env=self.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr + self.all_output())

    def says(self, tags, text):
        for tag in tags:
            try:
                wait_for(lambda tag=tag: text in self.read(f"err.{tag}"), f"{tag} to say {text!r}")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.all_output()}") from None


class MixedTest(TorchrunTest):
    no_host = "--rdzv-conf=is_host=false,last_call_timeout=3"
    host = "--rdzv-conf=is_host=true,last_call_timeout=3"

    def listens(self, tag):
        """Waits until the rendezvous listens: torchrun takes seconds to start."""
        def there():
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            except OSError:
                self.assertIsNone(self.nodes[tag].poll(), self.output(tag))
                return False
        wait_for(there, f"{tag} to listen")

    def pair(self, nnodes=2, *more):
        """Starts a (muster), which hosts, and t (torchrun)."""
        self.node("a", nnodes, self.host, "--local-addr=127.0.0.1", *more)
        self.listens("a")
        self.node("t", nnodes, self.no_host, "--local-addr=127.0.0.1", *more)

    def pair_at_torchrun(self, nnodes=2, *more):
        self.node("t", nnodes, self.host, "--local-addr=127.0.0.1", *more)
        self.listens("t")
        self.node("a", nnodes, self.no_host, "--local-addr=127.0.0.1", *more)


class MusterdTest(TorchrunTest):
    """All nodes meet at musterd."""
    run_id = "job"
    lease_s = LONG_LEASE_S
    # Jobs with "3:4" count their rounds: the first one must wait for the fourth node, which may come late on a busy
    # machine. No job waits for the end of the last call, unless fewer nodes than the maximum come at first.
    last_call_s = 600
    conf = None  # Of the nodes' --rdzv-conf. None: as in setUp().
    musterd_options = []
    musterd_prefix = []  # The words of a command that starts musterd.
    musterd_stderr = None  # A descriptor. None: the file err.musterd<number>.

    def setUp(self):
        super().setUp()
        self.worker.write_text(REACH + self.worker.read_text())
        if self.conf is None:
            self.conf = f"lease={self.lease_s},last_call_timeout={self.last_call_s},is_host=false"
        self.start_musterd()

    def start_musterd(self):
        """Starts musterd on `self.port`. The kernel gives that port to no outgoing connection while musterd is away."""
        self.musterds = getattr(self, "musterds", 0) + 1
        self.musterd = run_musterd(
            self, f"--lease-seconds={self.lease_s}", *self.musterd_options, port=self.port, prefix=self.musterd_prefix,
            log=self.dir / f"err.musterd{self.musterds}", stderr=self.musterd_stderr, env=self.environment(), ready=None)
        self.musterd.says("listening on")
        self.port = self.musterd.port

    def stop_musterd(self, number=signal.SIGKILL):
        self.musterd.send_signal(number)
        self.musterd.wait()

    def all_output(self):
        return super().all_output() + "".join(
            f"\nmusterd {i}:\n{self.read(f'err.musterd{i}')}" for i in range(1, self.musterds + 1))

    def arguments(self, tag, nnodes, extra):
        local = ["--local-addr=127.0.0.1"] if tag in self.launchers else []
        conf = self.conf.replace(f"lease={self.lease_s},", "") if tag in self.launchers else self.conf
        return [f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-id={self.run_id}",
                f"--rdzv-endpoint={self.endpoint()}", f"--rdzv-conf={conf}", *local, *extra]
