#!/usr/bin/env python3
"""Notices at seeded moments of jobs of three nodes, one of them a spare, each with one fault: the host is killed, the
notified node is killed early, its connection is cut, an answer is lost.

MUSTER_NOTICES=200 is the long form; MUSTER_SEED=N begins with another seed. MUSTER_BIN and MUSTERD_BIN name the programs."""
import os
import random
import signal
import sys
import time

import hardship  # noqa: F401  It finds the modules of the end-to-end tests.
from cable import Cable
from mixed import MusterdTest
from notice_facts import NoticeFacts
from support import PATIENCE_S, SOURCE, main, wait_for

NOTICES = int(os.environ.get("MUSTER_NOTICES", "8"))
SEED = int(os.environ.get("MUSTER_SEED", "1"))
FAULTS = ("none", "host", "node", "connection", "answer")
LEFT_S = 20  # Of a notice. 2 s of them are for the stop.

# Counts steps. Told of a notice, it saves the step. It answers and ends with 0, unless its answer is "lost".
WORKER = """#!{python}
import json, os, signal, sys, time
sys.path.insert(0, {module!r})
import muster_worker
folder, tag, rank = os.environ["TEST_DIR"], os.environ["NODE_TAG"], os.environ["RANK"]
def write(name, **facts):
    path = f"{{folder}}/{{name}}.{{tag}}.{{os.getpid()}}"
    with open(path + ".new", "w") as file:
        json.dump(facts, file)
    os.rename(path + ".new", path)
def on_term(number, frame):
    write("signalled", at=time.monotonic())
    os._exit(0)
signal.signal(signal.SIGTERM, on_term)
if not os.path.exists(f"{{folder}}/lost.{{tag}}.{{rank}}"):
    muster_worker.ends_itself()
write("start", world=int(os.environ["WORLD_SIZE"]), generation=muster_worker.generation())
last = None
step = 0
while not os.path.exists(folder + "/finish"):
    step += 1
    notice = muster_worker.notice()
    if notice and notice != last:
        last = notice
        if notice.doomed_ranks:  # The notice of a stop has none.
            write("told", deadline=notice.deadline, id=notice.id)
        time.sleep(0.05)
        write("saved", step=step)
        if not os.path.exists(f"{{folder}}/lost.{{tag}}.{{rank}}"):
            write("answered", id=notice.id)
            muster_worker.saved()
            sys.exit(0)
    time.sleep(0.02)
"""


class Notices(NoticeFacts, MusterdTest):
    def setUp(self):
        super().setUp()
        self.worker.write_text(WORKER.format(python=sys.executable, module=str(SOURCE / "worker_sdk/python")))

    def start_musterd(self):
        self.musterd_options = [f"--state-dir={self.dir}/state"]
        super().start_musterd()

    def arguments(self, tag, nnodes, extra):
        words = super().arguments(tag, nnodes, extra)
        if tag != self.notified:
            return words
        # The cable does not change the addresses that this node tells the others.
        return [f"--rdzv-endpoint=127.0.0.1:{self.cable.port}" if word.startswith("--rdzv-endpoint") else word
                for word in words]

    def one(self, seed):
        draw = random.Random(seed)
        self.run_id = f"job{seed}"
        for path in self.dir.glob("*.*"):
            if path.name.split(".")[0] in ("start", "told", "saved", "answered", "signalled", "lost", "goes"):
                path.unlink()
        (self.dir / "finish").unlink(missing_ok=True)
        fault, policy = draw.choice(FAULTS), draw.choice(("auto", "stop"))
        self.notified = draw.choice("ab")
        self.cable = Cable(self.port)
        self.addCleanup(self.cable.close)
        lost = f"lost.{draw.choice('ab')}.{draw.randrange(4)}"
        if fault == "answer":
            (self.dir / lost).touch()
        options = ["--nproc-per-node=2", "--no-python", "--exit-code=propagate", f"--on-notice={policy}", "--max-restarts=0",
                   "--shutdown-timeout=2", f"--notice-signals=SIGUSR1@{LEFT_S}",
                   f"--notice-from=while ! [ -e goes.$NODE_TAG ]; do sleep 0.05; done; echo {LEFT_S} seed {seed}"]
        for tag in "ab":
            self.node(tag, 2, *options)
        self.node("c", 2, *options, "--spare")
        first = wait_for(self.begun, "the first round")
        time.sleep(draw.uniform(0, 0.5))
        node = self.nodes[self.notified]
        if draw.random() < 0.5:
            node.send_signal(signal.SIGUSR1)
        else:
            (self.dir / f"goes.{self.notified}").touch()
        time.sleep(draw.uniform(0, 0.3))
        self.fail_beside(fault, draw)
        if fault == "connection":
            self.cable.cut()
        others = [process for tag, process in self.nodes.items() if tag != self.notified]
        wait_for(lambda: all(p.poll() is not None for p in others) or self.begun(after=first), "what follows the notice")
        (self.dir / "finish").touch()
        codes = {tag: process.wait(PATIENCE_S) for tag, process in self.nodes.items() if tag != self.notified}
        node.send_signal(signal.SIGTERM)  # It goes.
        node.wait(PATIENCE_S)
        what = f"seed {seed}: {fault}, {policy}, {self.notified}: {codes}"
        self.assertLessEqual(set(codes.values()), {0, 75}, what)
        self.assertEqual(len(set(codes.values())), 1, what)
        self.check(first, fault, what)
        self.cable.close()
        self.assert_nothing_left_of_job()

    def check(self, first, fault, what):
        told, saved, answered, signalled = (self.facts(name) for name in ("told", "saved", "answered", "signalled"))
        killed = self.notified if fault == "node" else None
        for key in first:
            if key[0] == killed:
                continue
            # Each worker of the round was told, by the job's notice or by that of the stop, and nothing was lost.
            self.assertIn(key, saved, what)
            if key in signalled and key in told and key not in answered and killed is None:
                self.assertGreaterEqual(signalled[key]["at"], told[key]["deadline"], what)
        if fault in ("none", "answer"):
            self.assertEqual(set(told), set(first), what)

    def assert_nothing_left_of_job(self):
        wait_for(lambda: not [words for words in self.token.processes().values() if "musterd" not in words],
                 "the end of all processes")

    def test_notices_with_faults(self):
        for seed in range(SEED, SEED + NOTICES):
            with self.subTest(seed=seed):
                self.one(seed)


if __name__ == "__main__":
    main()
