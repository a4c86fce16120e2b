#!/usr/bin/env python3
"""Tests which endpoints mean this machine: the answers must be those of torch."""
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
        # torch also looks up this machine's own name. muster does not if an interface has the
        # address.
        assert answer["match"] != "elsewhere" if torch else answer["match"] != "here", answer
        # Addresses that the kernel has and torch does not find.
        if answer["name"] in local and not torch:
            assert answer["match"] == "on_interface", answer
    assert answers[names.index("no-such-host.invalid")]["trouble"]


if __name__ == "__main__":
    harness.needs_torch()
    main(sys.argv[1])
