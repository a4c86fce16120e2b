#!/usr/bin/env python3
"""Tests values that are no pickles under the key of a rendezvous' state: PyTorch's own store client writes them at
musterd and at an agent that hosts. Its compare-and-set works as at PyTorch's server, and no node gets such a value."""
import subprocess
import sys

from mixed import MusterdTest, TorchrunTest, have_torch
from nodes import TORCH_PYTHON
from support import PATIENCE_S, main, wait_for

BEGIN = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, timeout=timedelta(seconds=20))
states = C10dRendezvousBackend(store, sys.argv[2])
"""

# No run has this key: the value is the client's own.
OWN_VALUE = """
_, token, has_set = states.set_state(b"no pickle")
assert has_set and states.get_state() == (b"no pickle", token)
assert states.set_state(b"late", b"wrong token")[2] is False
_, token, has_set = states.set_state(b"neither", token)
assert has_set and states.get_state() == (b"neither", token)
"""

# A run has this key: the client loses, and learns the run's state.
LOSES = """
import pickle
for token in (None, b"wrong token"):
    state, token, has_set = states.set_state(b"no pickle", token)
    assert not has_set and len(pickle.loads(state).participants) == int(sys.argv[3]), (state, has_set)
"""

END = """
store.set("after", "it answers")
assert store.get("after") == b"it answers"
"""


class Values:
    def setUp(self):
        if not have_torch():
            self.skipTest(f"there is no torch: {TORCH_PYTHON}")
        super().setUp()

    def client(self, code, *arguments):
        done = subprocess.run([TORCH_PYTHON, "-c", BEGIN + code + END, str(self.port), *arguments], capture_output=True,
                              text=True, check=False, timeout=PATIENCE_S, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr + self.all_output())

    def waits(self, tag):
        wait_for(lambda: "waiting for" in self.read(f"err.{tag}"), f"{tag} to wait for the other node")

    def lose_before_and_during_a_round(self):
        self.client(LOSES, "job", "1")
        self.node("b", 2)
        self.round_of(2)
        self.client(LOSES, "job", "2")
        self.tell("finish")
        self.ends(a=0, b=0)


class AtMusterd(Values, MusterdTest):
    def test_a_value_from_before_the_run_is_no_state_for_its_nodes(self):
        self.client(OWN_VALUE, "job")
        self.node("a", 1)
        self.round_of(1)
        self.tell("finish")
        self.ends(a=0)

    def test_a_value_under_the_key_of_a_run(self):
        self.node("a", 2)
        self.waits("a")
        self.lose_before_and_during_a_round()


class AtAnAgent(Values, TorchrunTest):
    def test_values_under_the_key_of_its_run_and_under_another_one(self):
        self.node("a", 2)
        self.waits("a")
        self.client(OWN_VALUE, "other")
        self.lose_before_and_during_a_round()


if __name__ == "__main__":
    sys.exit(main())
