"""Finds a port for a server that has not been started yet."""
import fcntl
import os
import pathlib
import random
import socket
import tempfile

# The ports of the rendezvous and of the static store, which some tests use on purpose.
DEFAULTS = {29400, 29500}
# One file per port. The process that gets a port locks its file until the process ends. So no two tests get the same
# port, although nothing listens on it before the first test starts its server.
LOCKS = pathlib.Path(tempfile.gettempdir()) / "muster-test-ports"
held_locks = []


def free_port():
    """A port on which no process listens now, and which no other call has returned. It is below the kernel's range
    for outgoing connections: otherwise a connection of another test could take the port before the server has
    started."""
    first_of_kernel = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = [port for port in range(10000, first_of_kernel) if port not in DEFAULTS]
    create_folder()
    for port in random.SystemRandom().sample(candidates, min(100, len(candidates))) or [0]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            port = probe.getsockname()[1]
            if lock(port):
                return port
    raise OSError(f"none of 100 ports below {first_of_kernel} is free")


def create_folder():
    """Creates the folder for the tests of all users of this machine."""
    try:
        LOCKS.mkdir()
    except FileExistsError:
        return
    LOCKS.chmod(0o1777)


def lock(port):
    """False if a process holds the lock of this port."""
    try:
        file = open_lock(LOCKS / str(port))
    except OSError:  # Another user has just created the file, and nobody else may open it yet.
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    held_locks.append(file)
    return True


def open_lock(path):
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        # Without O_CREAT: in a sticky folder the kernel may refuse it for another user's file (fs.protected_regular).
        return os.open(path, flags)
    except FileNotFoundError:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(file, 0o666)  # Whatever the umask is.
        return file
