"""A small file system in memory that can stop answering, like a dead NFS server.

The server is a separate process that speaks the kernel's FUSE protocol (<linux/fuse.h>) over
/dev/fuse. While it is silent it reads requests and does not answer them: a caller waits until
speak() or until the file system is unmounted. Needs root and /dev/fuse; available() checks that.

    with SilentFs(folder) as fs:
        ...
        fs.fall_silent()

SilentFs(folder, never={READ}) never answers these requests, and answers all others. Like many file
systems of clusters it has no sockets and no named pipes. owner=N: it shows this user as the owner of
everything, as SMB does. After renumber() all files have new inode numbers, as on sshfs.

To run it by hand: silent_fs.py FOLDER OWNER [NUMBER OF A REQUEST THAT IT NEVER ANSWERS...]. SIGUSR1
silences it, SIGUSR2 lets it answer again, SIGHUP renumbers, SIGTERM unmounts it.
"""
import contextlib
import ctypes
import errno
import os
import pathlib
import select
import signal
import stat
import struct
import subprocess
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
MKNOD, MKDIR, UNLINK, RMDIR, RENAME = 8, 9, 10, 11, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 14, 15, 16, 17, 18, 20
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR = 25, 26, 27, 28, 29, 30
ACCESS, CREATE, INTERRUPT, BATCH_FORGET = 34, 35, 36, 42
NO_ANSWER = {FORGET, INTERRUPT, BATCH_FORGET}
HEADER = struct.Struct("<IIQQIIII")  # fuse_in_header
MAX_WRITE = 128 << 10
MNT_DETACH = 2
SET_MODE, SET_SIZE = 1 << 0, 1 << 3  # FATTR_*
libc = ctypes.CDLL(None, use_errno=True)


def available():
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


class Node:
    owner = 0

    def __init__(self, number, mode):
        self.number, self.mode, self.data, self.names = number, mode, bytearray(), {}

    def attributes(self):
        now = int(time.time())
        owner = Node.owner
        links = 2 if stat.S_ISDIR(self.mode) else 1
        return struct.pack("<6Q10I", self.number, len(self.data), (len(self.data) + 511) // 512,
                           now, now, now, 0, 0, 0, self.mode, links, owner, owner, 0, 4096, 0)


class Server:
    """Answers requests until its file system is unmounted."""

    def __init__(self, folder, device, never=()):
        self.folder = folder
        self.device = device
        self.never = never
        self.silent = False
        self.unanswered = []
        self.nodes = {1: Node(1, stat.S_IFDIR | 0o777)}
        self.next_number = 2

    def run(self, signals):
        """`signals` is the descriptor from which the numbers of signals are read."""
        os.set_blocking(self.device, False)
        while True:
            readable, _, _ = select.select([self.device, signals], [], [])
            if signals in readable:
                for number in os.read(signals, 64):
                    self.on_signal(number)
            try:
                request = os.read(self.device, MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue  # There is no request, or its caller has given it up.
                return  # ENODEV: the file system was unmounted.
            if self.silent:
                self.unanswered.append(request)
            else:
                self.answer(request)

    def on_signal(self, number):
        if number == signal.SIGUSR1:
            self.silent = True
            os.write(1, b"silent\n")
        elif number == signal.SIGUSR2:
            self.speak()
        elif number == signal.SIGHUP:
            self.renumber()
            os.write(1, b"renumbered\n")
        else:
            libc.umount2(os.fsencode(self.folder), MNT_DETACH)

    def speak(self):
        self.silent = False
        requests, self.unanswered = self.unanswered, []
        for request in requests:
            self.answer(request)

    def renumber(self):
        """The old numbers stay valid for processes that have a file open."""
        for node in {node.number: node for node in self.nodes.values()}.values():
            if node.number != 1:
                node.number = self.next_number
                self.nodes[node.number] = node
                self.next_number += 1

    def answer(self, request):
        _, operation, unique, number, *_ = HEADER.unpack_from(request)
        if operation in NO_ANSWER:
            return
        if operation in self.never:
            with contextlib.suppress(BlockingIOError):  # Many lines that nobody has read.
                os.write(1, b"unanswered\n")
            return
        try:
            node = self.nodes.get(number)
            if node is None and operation != INIT:
                raise OSError(errno.ENOENT, "")
            body, error = self.serve(operation, node, request[HEADER.size:]), 0
        except OSError as problem:
            body, error = b"", -problem.errno
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError as problem:
            if problem.errno != errno.ENOENT:  # ENOENT: the caller of the request is gone.
                raise

    def entry(self, node):
        return struct.pack("<QQQQII", node.number, 0, 0, 0, 0, 0) + node.attributes()

    def make(self, parent, name, mode):
        if name in parent.names:
            raise OSError(errno.EEXIST, "")
        node = Node(self.next_number, mode)
        self.next_number += 1
        self.nodes[node.number] = parent.names[name] = node
        return node

    def serve(self, operation, node, body):
        if operation == INIT:
            _, _, read_ahead, _ = struct.unpack_from("<IIII", body)
            return struct.pack("<IIIIHHIIHH7I", 7, 31, read_ahead, 0, 12, 10, MAX_WRITE, 1, 0, 0,
                               *[0] * 7)
        if operation == LOOKUP:
            found = node.names.get(body.rstrip(b"\0"))
            if found is None:
                raise OSError(errno.ENOENT, "")
            return self.entry(found)
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + node.attributes()
        if operation == SETATTR:
            return self.set_attributes(node, body)
        if operation == MKDIR:
            mode, _ = struct.unpack_from("<II", body)
            return self.entry(self.make(node, body[8:].rstrip(b"\0"), stat.S_IFDIR | mode & 0o7777))
        if operation == CREATE:
            _, mode = struct.unpack_from("<II", body)
            made = self.make(node, body[16:].rstrip(b"\0"), stat.S_IFREG | mode & 0o7777)
            return self.entry(made) + struct.pack("<QII", 0, 1, 0)  # FOPEN_DIRECT_IO
        if operation in (UNLINK, RMDIR):
            return self.remove(node, body.rstrip(b"\0"))
        if operation == RENAME:
            return self.rename(node, body)
        if operation in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, int(operation == OPEN), 0)
        if operation == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return bytes(node.data[offset:offset + size])
        if operation == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            if offset > len(node.data):
                node.data.extend(bytes(offset - len(node.data)))
            node.data[offset:offset + size] = body[40:40 + size]
            return struct.pack("<II", size, 0)
        if operation == READDIR:
            _, offset, size = struct.unpack_from("<QQI", body)
            return self.entries(node, offset, size)
        if operation == STATFS:
            return struct.pack("<5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255,
                               4096, 0, *[0] * 6)
        if operation in (RELEASE, RELEASEDIR, FLUSH, FSYNC, FSYNCDIR, ACCESS):
            return b""
        raise OSError(errno.ENOSYS, "")

    def set_attributes(self, node, body):
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & SET_MODE:
            (mode,) = struct.unpack_from("<I", body, 68)
            node.mode = stat.S_IFMT(node.mode) | mode & 0o7777
        if valid & SET_SIZE:
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        return struct.pack("<QII", 0, 0, 0) + node.attributes()

    def remove(self, parent, name):
        if name not in parent.names:
            raise OSError(errno.ENOENT, "")
        if parent.names[name].names:
            raise OSError(errno.ENOTEMPTY, "")
        del parent.names[name]  # The node stays for processes that have it open.
        return b""

    def rename(self, parent, body):
        (to_number,) = struct.unpack_from("<Q", body)
        old, new = body[8:].split(b"\0")[:2]
        if old not in parent.names:
            raise OSError(errno.ENOENT, "")
        self.nodes[to_number].names[new] = parent.names.pop(old)
        return b""

    @staticmethod
    def entries(node, offset, size):
        out = b""
        for place, (name, child) in enumerate(node.names.items()):
            if place < offset:
                continue
            one = struct.pack("<QQII", child.number, place + 1, len(name), child.mode >> 12) + name
            one += bytes(-len(one) % 8)
            if len(out) + len(one) > size:
                break
            out += one
        return out


class SilentFs:
    def __init__(self, folder, never=(), owner=0):
        self.folder = pathlib.Path(folder)
        self.never = never
        self.owner = owner
        self.server = None
        self.unanswered = 0

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        self.server = subprocess.Popen([sys.executable, os.path.abspath(__file__),
                                        str(self.folder), str(self.owner), *map(str, self.never)],
                                       stdout=subprocess.PIPE)
        if self.server.stdout.readline() != b"mounted\n":
            self.server.wait()
            raise OSError("the file system could not be mounted")
        return self

    def __exit__(self, *_):
        # The server's end closes the connection and so ends every wait.
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()
        libc.umount2(os.fsencode(self.folder), MNT_DETACH)

    def fall_silent(self):
        os.kill(self.server.pid, signal.SIGUSR1)
        self.read_until(lambda line: line == b"silent\n")

    def renumber(self):
        os.kill(self.server.pid, signal.SIGHUP)
        self.read_until(lambda line: line == b"renumbered\n")

    def wait_for_unanswered(self, count):
        """Waits until the server has taken so many requests that it never answers: nothing ends their callers now."""
        if self.unanswered < count:
            self.read_until(lambda line: self.unanswered >= count)

    def read_until(self, is_last):
        while True:
            line = self.server.stdout.readline()
            if not line:
                raise OSError("the server has ended")
            self.unanswered += line == b"unanswered\n"
            if is_last(line):
                return

    def speak(self):
        os.kill(self.server.pid, signal.SIGUSR2)


def serve(folder, owner, never):
    Node.owner = owner
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"silent_fs", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    # Python would run a handler only after a read that has just begun.
    signals, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server = Server(folder, device, never)
    os.write(1, b"mounted\n")
    os.set_blocking(1, False)
    server.run(signals)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), {int(number) for number in sys.argv[3:]})
