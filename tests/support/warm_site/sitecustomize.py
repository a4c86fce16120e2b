"""If WARM_PYTHON (a socket) is in the environment, a copy of a process that has loaded torch runs
this program: tests/support/warm_python.py. This process waits, and ends as the copy ends."""
import os
import sys


def words_of_the_program():
    """Returns the program with its arguments, and whether Python must not buffer. The program is
    None if this process must run it itself."""
    words = sys.orig_argv[1:]
    unbuffered = words[:1] == ["-u"]
    if unbuffered:
        del words[0]
    # Processes that multiprocessing spawns need the descriptors that they inherit.
    if not words or (words[0].startswith("-") and words[0] not in ("-c", "-m")) or "--multiprocessing-fork" in words:
        return None, unbuffered
    return words, unbuffered


def run_in_a_copy(path, words, unbuffered):
    import json
    import signal
    import socket
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    request = json.dumps({"words": words, "unbuffered": unbuffered, "folder": os.getcwd(),
                          "environment": dict(os.environ)}).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    answer = server.recv(4, socket.MSG_WAITALL)
    if len(answer) < 4:
        os.write(2, b"the server of warm_python.py is gone\n")
        os._exit(1)
    code = int.from_bytes(answer, "big", signed=True)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if "WARM_PYTHON" in os.environ and os.path.realpath(sys.prefix) == os.environ["WARM_PYTHON_PREFIX"]:
    program, is_unbuffered = words_of_the_program()
    if program:
        run_in_a_copy(os.environ["WARM_PYTHON"], program, is_unbuffered)
