"""Finds a port for a server that has not been started yet."""
import pathlib
import random
import socket

# The ports of the rendezvous and of the static store, which some tests use on purpose.
DEFAULTS = {29400, 29500}


def free_port():
    """A port on which no process listens now. It is below the kernel's range for outgoing
    connections: otherwise a connection of another test could take the port before the server has
    started."""
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
