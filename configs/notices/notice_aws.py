#!/usr/bin/env python3
"""Says when AWS will take this spot instance away: a program for --notice-from of muster.

    muster --notice-from "notice_aws.py" …

Asks the instance metadata service (version 2) every five seconds, as AWS advises, and prints SECONDS and a reason once there
is an interruption notice or a rebalance recommendation that was asked for. It needs nothing but Python 3.8.
"""
import argparse
import datetime
import json
import sys
import time
import urllib.error
import urllib.request


def fetch(url, headers, method="GET"):
    """The text at `url`; None if there is nothing (404)."""
    request = urllib.request.Request(url, headers=headers, method=method)
    # The service is on the machine itself: no proxy leads there.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as answer:
            return answer.read(65536).decode()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


class Metadata:
    def __init__(self, endpoint):
        self.endpoint = endpoint.rstrip("/")
        self.token = None

    def get(self, path):
        if self.token is None:
            self.token = fetch(f"{self.endpoint}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}, "PUT")
        try:
            return fetch(f"{self.endpoint}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self.token or ""})
        except urllib.error.HTTPError as error:
            if error.code == 401:  # The token has expired: the next call gets a new one.
                self.token = None
            raise


def seconds_until(text, now):
    """`text`: 2026-11-29T12:00:00Z"""
    then = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    return max(0.0, then.timestamp() - now)


def look(metadata, rebalance_s, now):
    """The line to print, or None."""
    action = metadata.get("spot/instance-action")
    if action is not None:
        facts = json.loads(action)
        return f"{seconds_until(facts['time'], now):.0f} AWS will {facts['action']} this spot instance"
    if rebalance_s is not None and metadata.get("events/recommendations/rebalance") is not None:
        return f"{rebalance_s:.0f} AWS recommends to leave this spot instance"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", default="http://169.254.169.254", help="for tests")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two questions")
    parser.add_argument("--rebalance", type=float, metavar="SECONDS",
                        help="a rebalance recommendation is a notice of so many seconds; without it, it means nothing")
    options = parser.parse_args()
    metadata = Metadata(options.endpoint)
    failures = 0
    while True:
        try:
            line = look(metadata, options.rebalance, time.time())
            failures = 0
        except (OSError, ValueError, KeyError) as error:  # urllib's errors are OSErrors.
            failures += 1
            if failures >= 12:
                sys.exit(f"the metadata service of AWS does not answer: {error}")
            line = None
        if line is not None:
            print(line, flush=True)
            return
        time.sleep(options.interval)


if __name__ == "__main__":
    main()
