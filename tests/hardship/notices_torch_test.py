#!/usr/bin/env python3
"""Notices at seeded moments of a job with DDP and data loaders, on four machines of one network: two nodes, one that makes
the job elastic, and a spare. The notice comes by a signal, from a program or from an operator, and one fault beside it: the
host is killed, the notified node is killed early, its cable is out for a while, an answer is lost.

MUSTER_NOTICES=200 is the long form; MUSTER_SEED=N begins with another seed. Needs root, for network namespaces, and torch
in the interpreter that runs it; without them it is skipped (77)."""
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import hardship  # noqa: F401  It finds the modules of the end-to-end tests.
import lan
from mixed import MusterdTest
from musterd import run_musterd
from notice_facts import NoticeFacts
from support import MUSTER, PATIENCE_S, SOURCE, main, wait_for
from warm_reduce import LIBC, PR_SET_PDEATHSIG, WarmReduce, enter_namespaces_of, peer_of, take_environment

NOTICES = int(os.environ.get("MUSTER_NOTICES", "4"))
SEED = int(os.environ.get("MUSTER_SEED", "1"))
MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
FAULTS = ("host", "node", "cable", "answer")
WAYS = ("signal", "program", "operator")
LEFT_S, STOP_S = 20, 2
PORT, HTTP_PORT = 29400, 29480

# The worker. A copy of a process that has loaded torch trains for it (train() below), and tells it with which code to end.
# The worker itself notes when it is signalled: it is never in the middle of a call of torch.
WORKER = """#!{python} -S
import json, os, signal, socket, time
folder, tag = os.environ["TEST_DIR"], os.environ["NODE_TAG"]
def on_term(number, frame):
    path = f"{{folder}}/signalled.{{tag}}.{{os.getpid()}}"
    with open(path + ".new", "w") as file:
        json.dump({{"at": time.monotonic()}}, file)
    os.rename(path + ".new", path)
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
trainer = socket.socket(socket.AF_UNIX)
trainer.connect({path!r})
trainer.sendall(json.dumps(dict(os.environ)).encode() + b"\\n")
os._exit(int(trainer.makefile("r").readline() or 3))
"""


def train(pid):
    """In a copy: trains as the worker `pid` until it is told to stop, and returns the worker's exit code."""
    import datetime
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset
    sys.path.insert(0, str(SOURCE / "worker_sdk/python"))
    import muster_worker

    folder, tag, rank = (os.environ[name] for name in ("TEST_DIR", "NODE_TAG", "RANK"))

    def write(name, **facts):
        path = f"{folder}/{name}.{tag}.{pid}"
        with open(path + ".new", "w") as file:
            json.dump(facts, file)
        os.rename(path + ".new", path)

    class Numbers(Dataset):
        def __len__(self):
            return 1 << 30

        def __getitem__(self, index):
            return torch.full((4,), float(index % 7 + int(rank)))

    def digest():
        return sum(p.detach().double().sum().item() for p in model.parameters()).hex()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    checkpoint, first, loaded = folder + "/checkpoint", 0, None
    if os.path.exists(checkpoint):
        snapshot = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(snapshot["model"])
        first, loaded = snapshot["step"], snapshot["digest"]
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="fork",
                        worker_init_fn=lambda _: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    loses = os.path.exists(f"{folder}/lost.{tag}.{os.environ['LOCAL_RANK']}")
    if not loses:
        muster_worker.ends_itself()
    write("start", world=dist.get_world_size(), generation=muster_worker.generation(), step=first, loaded=loaded,
          digest=digest())
    told = None

    def read_notice():
        nonlocal told
        notice = muster_worker.notice()
        if notice is None or not notice.doomed_ranks:  # The notice of a stop has no ranks.
            return None
        if notice != told:
            told = notice
            write("told", deadline=notice.deadline, id=notice.id)
        return notice

    for step, batch in enumerate(loader, first + 1):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        flags = torch.tensor([read_notice() is not None, os.path.exists(folder + "/finish")], dtype=torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        if flags[0]:
            if dist.get_rank() == 0:
                torch.save({"model": model.state_dict(), "step": step, "digest": digest()}, checkpoint + ".new")
                os.rename(checkpoint + ".new", checkpoint)
            dist.barrier()
            write("saved", step=step, digest=digest())
            if loses:
                while True:
                    read_notice()
                    time.sleep(0.05)
            write("answered")
            muster_worker.saved()
            return 0
        if flags[1]:
            return 0
        time.sleep(0.01)
    return 1


def be_a_trainer(worker):
    lines = worker.makefile("r")
    environment = json.loads(lines.readline())
    pid = peer_of(worker)
    enter_namespaces_of(pid)
    take_environment(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # For the loader's processes.

    def end_with_the_worker():
        lines.read()
        os._exit(0)
    threading.Thread(target=end_with_the_worker, daemon=True).start()
    try:
        code = train(pid)
    except BaseException:
        with open(f"{environment['TEST_DIR']}/trouble.{environment['NODE_TAG']}.{pid}", "w") as file:
            traceback.print_exc(file=file)
        code = 1
    worker.sendall(f"{code}\n".encode())
    os._exit(0)


class NoticesWithTorch(NoticeFacts, MusterdTest):
    def setUp(self):
        self.net = None
        super().setUp()
        import torch._dynamo  # noqa: F401  An optimizer loads it. The copies have it already.
        import torch.nn.parallel  # noqa: F401
        import torch.utils.data  # noqa: F401
        trainers = WarmReduce(self.dir / "trainers", be_a_trainer)
        self.addCleanup(trainers.close)
        self.worker.write_text(WORKER.format(python=sys.executable, path=trainers.path))

    def start_musterd(self):
        if self.net is None:
            self.net = lan.Lan(self.dir, ["hub", *"abcd"])
            self.addCleanup(self.net.close)
            self.port = PORT
            self.launchers = {tag: [*self.net.on(tag), os.path.abspath(MUSTER)] for tag in "abcd"}
        self.musterds = getattr(self, "musterds", 0) + 1
        self.musterd = run_musterd(
            self, f"--lease-seconds={self.lease_s}", f"--state-dir={self.dir}/state", f"--http=127.0.0.1:{HTTP_PORT}",
            bind="0.0.0.0", port=PORT, prefix=self.net.on("hub"),
            log=self.dir / f"err.musterd{self.musterds}", env=self.environment(), ready="HTTP at")

    def endpoint(self):
        return f"hub:{PORT}"

    def arguments(self, tag, nnodes, extra):
        return [f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-id={self.run_id}", f"--rdzv-endpoint={self.endpoint()}",
                f"--rdzv-conf=lease={self.lease_s},last_call_timeout=5,is_host=false", *extra]

    def troubles(self):
        return "".join(f"\n{path.name}: {path.read_text()}" for path in self.dir.glob("trouble.*"))

    def notify(self, way, seed):
        if way == "signal":
            self.nodes[self.notified].send_signal(signal.SIGUSR1)
        elif way == "program":
            (self.dir / f"goes.{self.notified}").touch()
        else:
            words = [*self.net.on("hub"), MUSTERCTL, "drain", self.run_id, self.net.addresses[self.notified], f"--notice={LEFT_S - STOP_S}",
                     f"--reason=seed {seed}"]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                                  env=self.environment(MUSTER_ENDPOINT=f"127.0.0.1:{HTTP_PORT}"))
            self.assertEqual(done.returncode, 0, done.stderr)

    def one(self, seed):
        draw = random.Random(seed)
        self.run_id = f"job{seed}"
        for path in [*self.dir.glob("*.[abcd].*"), *self.dir.glob("goes.*"), *self.dir.glob("checkpoint*")]:
            path.unlink()
        (self.dir / "finish").unlink(missing_ok=True)
        fault, policy, way = draw.choice(FAULTS), draw.choice(("auto", "stop")), draw.choice(WAYS)
        self.notified = draw.choice("abd")
        if fault == "answer":
            (self.dir / f"lost.{draw.choice('abd')}.0").touch()
        options = ["--no-python", "--exit-code=propagate", f"--on-notice={policy}", "--max-restarts=2",
                   f"--shutdown-timeout={STOP_S}", f"--notice-signals=SIGUSR1@{LEFT_S}",
                   f"--notice-from=while ! [ -e goes.$NODE_TAG ]; do sleep 0.05; done; echo {LEFT_S} seed {seed}"]
        for tag in "abd":
            self.node(tag, "2:3", *options)
        self.node("c", "2:3", *options, "--spare")
        what = f"seed {seed}: {fault}, {policy}, {self.notified} by {way}"
        try:
            first = wait_for(self.full_round, "the first round")
            time.sleep(draw.uniform(0, 0.5))
            self.notify(way, seed)
            time.sleep(draw.uniform(0, 0.3))
            self.fail_beside(fault, draw)
            if fault == "cable":
                self.net.unplug(self.notified)
                time.sleep(draw.uniform(0, 1.5))
                self.net.plug(self.notified)
            others = [process for tag, process in self.nodes.items() if tag != self.notified]
            wait_for(lambda: all(p.poll() is not None for p in others) or self.begun(after=first), "what follows")
            (self.dir / "finish").touch()
            codes = {tag: process.wait(PATIENCE_S) for tag, process in self.nodes.items() if tag != self.notified}
            self.nodes[self.notified].terminate()  # It goes.
            self.nodes[self.notified].wait(PATIENCE_S)
        except Exception as error:
            raise AssertionError(f"{what}: {error}{self.troubles()}\n{self.all_output()}") from error
        what = f"{what}: {codes}{self.troubles()}\n{self.all_output()}"
        self.assertLessEqual(set(codes.values()), {0, 75}, what)
        self.assertEqual(len(set(codes.values())), 1, what)
        if fault != "node":
            self.assertEqual(set(codes.values()), {75 if policy == "stop" else 0}, what)
            self.check(first, what)
        self.check_next_round(first, what)
        wait_for(lambda: not [words for words in self.token.processes().values() if "musterd" not in words],
                 "the end of all processes")

    def full_round(self):
        round = self.begun()
        return round if round and {key[0] for key in round} == set("abd") else None

    def check(self, first, what):
        told, saved, answered, signalled = (self.facts(name) for name in ("told", "saved", "answered", "signalled"))
        # Every rank has saved the same step, and nothing was lost.
        self.assertLessEqual(set(first), set(saved), what)
        self.assertEqual(len({(saved[key]["step"], saved[key]["digest"]) for key in first}), 1, what)
        for key in first:
            if key in signalled and key not in answered:
                self.assertGreaterEqual(signalled[key]["at"], told[key]["deadline"], what)

    def check_next_round(self, first, what):
        """All ranks of the round that follows have loaded the last step that was saved, or begin anew if none was."""
        last = self.begun(after=first)
        if not last:
            return
        self.assertNotIn(self.notified, {key[0] for key in last}, what)
        saved = self.facts("saved")
        saved = max((saved[key] for key in first if key in saved), key=lambda fact: fact["step"], default=None)
        if saved is None and (self.dir / "checkpoint").exists():
            saved = {name: next(iter(last.values()))[name] for name in ("step", "digest")}  # Of a rank that was killed then.
        for fact in last.values():
            if saved is None:
                self.assertEqual((fact["step"], fact["loaded"]), (0, None), what)
            else:
                self.assertEqual((fact["step"], fact["loaded"], fact["digest"]),
                                 (saved["step"], saved["digest"], saved["digest"]), what)

    def test_notices_with_faults(self):
        for seed in range(SEED, SEED + NOTICES):
            with self.subTest(seed=seed):
                try:
                    self.one(seed)
                finally:
                    for process in self.nodes.values():
                        process.kill()
                        process.wait()


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this interpreter has no torch")
        sys.exit(77)
    lan.main()
