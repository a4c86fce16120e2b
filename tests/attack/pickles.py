"""Pickles that must not be unpickled: those of tests/conformance/rendezvous/reject, and some that run a program in any
process that unpickles them with Python."""
import base64
import os
import pathlib
import pickle
import subprocess
import sys

REJECTED = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "rendezvous" / "reject"
GOOD = REJECTED.parent / "golden" / "02_one_participant_waiting.b64"


def rejected():
    """{name: the value for the store's key}"""
    return {path.stem: path.read_bytes() for path in sorted(REJECTED.glob("*.b64"))}


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def text_of(pickled):
    return base64.b64encode(pickled)


def executing(marker):
    """{name: the value for the store's key}. Each value makes the file `marker` when Python unpickles it."""
    touch = f"touch {marker}"
    opens = f"open({str(marker)!r}, 'w').close()"
    short = b"\x8c" + bytes([len(touch)]) + touch.encode()
    pickles = {
        "system": pickle.dumps(Calls(os.system, touch)),
        "system_of_protocol_2": pickle.dumps(Calls(os.system, touch), protocol=2),
        "system_of_protocol_0": pickle.dumps(Calls(os.system, touch), protocol=0),
        "exec": pickle.dumps(Calls(exec, opens)),
        "eval": pickle.dumps(Calls(eval, opens)),
        "popen": pickle.dumps(Calls(subprocess.call, ["/usr/bin/touch", str(marker)])),
        "in_a_list": pickle.dumps([1, {"a": (Calls(os.system, touch),)}]),
        "instance": b"(S'" + touch.encode() + b"'\niposix\nsystem\n.",
        "object": b"(cposix\nsystem\nS'" + touch.encode() + b"'\no.",
        "before_a_mistake": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85Rh\x77.",
    }
    good = base64.b64decode(GOOD.read_bytes())
    call = b"\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R0"
    pickles["in_front_of_a_good_state"] = good[:2] + call + good[2 + 9:]  # Without its frame, which would end elsewhere.
    pickles["behind_a_good_state"] = good[:2] + good[2 + 9:-1] + call + b"."
    return {name: text_of(pickled) for name, pickled in pickles.items()}


UNPICKLE = """
import base64, pickle, sys
class State:
    pass
class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return State if module.startswith("torch") else super().find_class(module, name)
import io
for line in sys.stdin:
    name, text = line.split()
    try:
        Unpickler(io.BytesIO(base64.b64decode(text))).load()
    except Exception as error:
        pass
"""


def check_that_python_executes(marker):
    """Checks that each of them really runs in Python. Otherwise a test that sends them would prove nothing."""
    for name, text in executing(marker).items():
        subprocess.run([sys.executable, "-c", UNPICKLE], input=f"{name} {text.decode()}\n", text=True, check=True)
        if not marker.exists():
            raise AssertionError(f"the pickle {name} executes nothing")
        marker.unlink()
