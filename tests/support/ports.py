"""A port for a server that is yet to be started."""
import pathlib
import random
import socket

DEFAULTS = {29400, 29500}  # Of the rendezvous and of the static store: some tests use them on purpose.


def free_port():
    """Nobody listens there now. Below those that the kernel hands out: another test's connection would take one of
    these before the server has begun."""
    first_of_kernel = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = [port for port in range(10000, first_of_kernel) if port not in DEFAULTS]
    for port in random.SystemRandom().sample(candidates, min(100, len(candidates))) or [0]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError(f"none of 100 ports below {first_of_kernel} is free")
