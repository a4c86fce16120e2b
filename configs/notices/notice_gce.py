#!/usr/bin/env python3
"""Says when Google Compute Engine will take this VM away: a program for --notice-from of muster.

    muster --notice-from "notice_gce.py" …

Waits at the metadata server for the value `preempted` (the server answers when it changes, so nothing is polled), and prints
SECONDS and a reason. A spot VM has 30 s from then on; --seconds names another time, for VMs with a longer one. With
--maintenance it also tells of host maintenance, which comes 60 s ahead, or an hour with GPUs. It needs nothing but Python 3.8.
"""
import argparse
import sys
import threading
import time
import urllib.error
import urllib.request


def wait_for_change(endpoint, name, last_etag, limit_s):
    """The value of an instance's key and its ETag, as soon as it differs from `last_etag`."""
    url = (f"{endpoint.rstrip('/')}/computeMetadata/v1/instance/{name}"
           f"?wait_for_change=true&timeout_sec={limit_s}&last_etag={last_etag}")
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    # The server is beside the machine: no proxy leads there.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=limit_s + 10) as answer:
        return answer.read(4096).decode().strip(), answer.headers.get("ETag", "0")


def watch(endpoint, name, is_notice, line, done):
    etag, failures = "0", 0
    while True:
        try:
            value, etag = wait_for_change(endpoint, name, etag, 300)
            failures = 0
        except (OSError, ValueError) as error:  # urllib's errors are OSErrors.
            failures += 1
            if failures >= 12:
                return done(None, f"the metadata server of GCE does not answer: {error}")
            time.sleep(5)
            continue
        if is_notice(value):
            return done(line, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", default="http://metadata.google.internal", help="for tests")
    parser.add_argument("--seconds", type=float, default=30.0, help="from the preemption to the end of the VM")
    parser.add_argument("--maintenance", type=float, metavar="SECONDS",
                        help="host maintenance that ends the VM is a notice of so many seconds")
    options = parser.parse_args()
    over = threading.Event()
    results = []

    def done(line, problem):
        results.append((line, problem))
        over.set()

    watches = [("preempted", lambda value: value == "TRUE", f"{options.seconds:.0f} GCE preempts this VM")]
    if options.maintenance is not None:
        watches.append(("maintenance-event", lambda value: value == "TERMINATE_ON_HOST_MAINTENANCE",
                        f"{options.maintenance:.0f} GCE maintains the host of this VM"))
    for name, is_notice, line in watches:
        threading.Thread(target=watch, args=(options.endpoint, name, is_notice, line, done), daemon=True).start()
    over.wait()
    line, problem = results[0]
    if problem:
        sys.exit(problem)
    print(line, flush=True)


if __name__ == "__main__":
    main()
