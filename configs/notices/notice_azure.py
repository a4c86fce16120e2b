#!/usr/bin/env python3
"""Says when Azure will take this VM away: a program for --notice-from of muster.

    muster --notice-from "notice_azure.py" …

Asks the metadata service for scheduled events every second, as Azure advises, and prints SECONDS and a reason for each event
of this VM that ends or stops it: Preempt, Terminate, Redeploy, Reboot, and with --freeze Freeze. It goes on after that, as a
later event may be earlier. It needs nothing but Python 3.8.
"""
import argparse
import email.utils
import json
import socket
import sys
import time
import urllib.request

VERSION = "2020-07-01"


def fetch(url):
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    # The service is on the machine itself: no proxy leads there.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # The first answer may take two minutes: the service starts at the first question.
    with opener.open(request, timeout=130) as answer:
        return json.loads(answer.read(1 << 20).decode())


def seconds_until(text, now):
    """`text`: Sun, 29 Nov 2026 12:00:00 GMT. Empty: the event has begun."""
    if not text:
        return 0.0
    return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)


def lines(answer, name, kinds, now):
    """(the event's id, the line) for each event of this VM."""
    for event in answer.get("Events", []):
        if event.get("EventType") not in kinds or name not in event.get("Resources", []):
            continue
        left = seconds_until(event.get("NotBefore", ""), now)
        yield event["EventId"], f"{left:.0f} Azure: {event['EventType']} of this VM"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", default="http://169.254.169.254", help="for tests")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two questions")
    parser.add_argument("--name", help="of this VM in Azure; without it the service is asked")
    parser.add_argument("--freeze", action="store_true", help="a pause of some seconds is a notice, too")
    options = parser.parse_args()
    endpoint = options.endpoint.rstrip("/")
    kinds = {"Preempt", "Terminate", "Redeploy", "Reboot"} | ({"Freeze"} if options.freeze else set())
    name, told, failures = options.name, set(), 0
    while True:
        try:
            if name is None:
                compute = fetch(f"{endpoint}/metadata/instance/compute?api-version={VERSION}")
                name = compute.get("name") or socket.gethostname()
            found = list(lines(fetch(f"{endpoint}/metadata/scheduledevents?api-version={VERSION}"), name, kinds, time.time()))
            failures = 0
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # urllib's errors are OSErrors.
            failures += 1
            if failures >= 12:
                sys.exit(f"the metadata service of Azure does not answer: {error}")
            found = []
        for event, line in found:
            if event not in told:
                told.add(event)
                print(line, flush=True)
        time.sleep(options.interval)


if __name__ == "__main__":
    main()
