#!/usr/bin/env python3
"""Restarts use up no resources: descriptors, memory, processes, names in the file system.

MUSTER_RESTARTS=2000 is the long form; docs/testing.md."""
import resource

from restart_counts import RESTARTS, WARM_UP, RestartCounts
from support import main

# Fails at once, but in two of its attempts waits until the test has counted.
SCRIPT = """#!/bin/sh
echo "attempt $TORCHELASTIC_RESTART_COUNT"
echo "error $TORCHELASTIC_RESTART_COUNT" >&2
case $TORCHELASTIC_RESTART_COUNT in
  {first}|{last})
    echo $LOCAL_RANK >> ready.$TORCHELASTIC_RESTART_COUNT
    while [ ! -e go.$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.05; done
esac
exit 1
"""


class Restarts(RestartCounts):
    def fail_again(self, *args, restarts=RESTARTS, **settings):
        script = self.script("fail.sh", SCRIPT.format(first=WARM_UP, last=restarts))
        self.restart("--no-python", *args, script, restarts=restarts, **settings)

    def test_without_logs(self):
        self.fail_again()

    def test_with_tee(self):
        # The logs are meant to stay: attempt_<n>, and a directory and two files for each worker.
        self.fail_again("--tee=3", names_of_an_attempt=1 + 2 * 3)

    def test_with_logs_through_muster(self):
        self.fail_again("--redirects=3", "--tee=3", "--log-on-full=drop",
                        names_of_an_attempt=1 + 2 * 3, restarts=RESTARTS // 3)

    def test_with_a_rendezvous(self):
        self.fail_again("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", restarts=RESTARTS // 3)

    def test_with_few_descriptors(self):
        self.fail_again("--tee=3", workers=4, restarts=max(60, RESTARTS // 5),
                        names_of_an_attempt=1 + 4 * 3,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))


if __name__ == "__main__":
    main()
