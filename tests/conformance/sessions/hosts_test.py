#!/usr/bin/env python3
"""Which endpoint means this machine: the same answers as torch gives."""
import json
import socket
import subprocess
import sys

import harness


def names_to_try():
    own = socket.gethostname()
    names = ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", own, own.upper(),
             socket.getfqdn(), "0.0.0.0", "::", "192.0.2.77", "no-such-host.invalid"]
    with open("/proc/net/fib_trie", encoding="ascii") as routes:
        lines = [line.strip() for line in routes]
    local = {before.split()[-1] for before, line in zip(lines, lines[1:]) if "host LOCAL" in line}
    return names + sorted(local), local


def main(driver):
    from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname
    names, local = names_to_try()
    output = subprocess.run([driver, "hosts", *names], capture_output=True, text=True, timeout=120,
                            check=True).stdout
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["name"] for answer in answers] == names
    for answer in answers:
        torch = _matches_machine_hostname(answer["name"])
        print(answer, "torch:", torch)
        # Where an interface has the address we do not ask for our own name, as torch does.
        assert answer["match"] != "elsewhere" if torch else answer["match"] != "here", answer
        # What torch does not find though the kernel has it.
        if answer["name"] in local and not torch:
            assert answer["match"] == "on_interface", answer
    assert answers[names.index("no-such-host.invalid")]["trouble"]


if __name__ == "__main__":
    harness.needs_torch()
    main(sys.argv[1])
