"""Stands for the other workers of a job, as a collective operation does for a real worker.

Each worker (native/note_time.cc, mode peers) has a connection to Peers. When one worker is gone,
Peers closes the connections of all others, and each of them ends with status 1, as gloo's workers
do in their next all_reduce.
"""
import pathlib
import selectors
import socket
import tempfile
import threading


class Peers:
    """Accepts the workers' connections, in a thread of its own. It is a context manager."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="muster-bench-")
        self.path = str(pathlib.Path(self._folder.name) / "peers")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self.path)
        self._listening.listen()
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._changed = threading.Condition()
        self._connected = {}  # pid -> socket
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._wake.close()
        self._thread.join()
        for one in [*self._connected.values(), self._listening, self._woken]:
            one.close()
        self._selector.close()
        self._folder.cleanup()

    def wait_for(self, pids, limit_s):
        """Returns whether the workers of all these pids were connected within the limit."""
        with self._changed:
            return self._changed.wait_for(lambda: set(pids) <= set(self._connected), limit_s)

    def is_connected(self, pid):
        with self._changed:
            return pid in self._connected

    def fail(self, pid):
        """Makes one worker end with status 1. The other workers then end, too."""
        with self._changed:
            self._connected[pid].sendall(b"f")

    def _run(self):
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._woken in ready:
                return
            # Handles lost connections before new ones: a new worker must not be closed together
            # with the old ones.
            with self._changed:
                for one in sorted(ready, key=lambda one: one is self._listening):
                    self._serve(one)
                self._changed.notify_all()

    def _serve(self, ready):
        if ready is self._listening:
            one, _ = ready.accept()
            # The worker sends its pid as soon as it is connected, unless it was killed before.
            one.settimeout(10)
            with one.makefile("rb") as file:
                pid = file.readline()
            if not pid.endswith(b"\n"):
                one.close()
                return
            self._connected[int(pid)] = one
            self._selector.register(one, selectors.EVENT_READ)
        elif ready in self._connected.values() and not self._read(ready):
            for one in self._connected.values():
                self._selector.unregister(one)
                one.close()
            self._connected.clear()

    @staticmethod
    def _read(one):
        try:
            return one.recv(64)
        except OSError:
            return b""
