"""A TCP proxy between a node and its host: a cable that can be cut, or that delays what is sent."""
import socket
import threading


class Cable:
    def __init__(self, port):
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = set()
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # It is closed.
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to), 10)
            except OSError:  # The host is away.
                client.close()
                continue
            self.open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    def pump(self, one, other):
        try:
            while data := one.recv(65536):
                self.flows.wait()
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            self.open.discard(end)
            end.close()

    def hold(self):
        """What is sent from now on waits for release()."""
        self.flows.clear()

    def release(self):
        self.flows.set()

    def cut(self):
        for end in list(self.open):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        self.release()
        self.cut()
