#!/usr/bin/env python3
"""The attacks against a live job of two muster nodes: its rendezvous and its workers' store go on.

    job_attack_test.py [-v] [OnJob.test_NAME ...]      (MUSTER_BIN names the program)
"""
import attacks
from hostile import main
from victim_job import VictimJob, add_tests

# An honest worker: in each step every rank adds to a key of the step and waits until all have. It
# notes the longest step since it was last asked, and ends when the file "finish" is there.
WORKER = """
import os, socket, struct, sys, time
folder, rank, world = os.environ["TEST_DIR"], os.environ["RANK"], int(os.environ["WORLD_SIZE"])
def text(data):
    return struct.pack("<Q", len(data)) + data
def receive(size):
    data = b""
    while len(data) < size:
        part = store.recv(size - len(data))
        if not part:
            sys.exit("the store has closed the connection")
        data += part
    return data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 60)
store.settimeout(60)
store.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE))
def note(name, line):
    with open(f"{folder}/{name}.{rank}.new", "w") as file:
        file.write(line)
    os.rename(f"{folder}/{name}.{rank}.new", f"{folder}/{name}.{rank}")
note("master", os.environ["MASTER_PORT"])
step = 0
told = False
while True:
    begin = time.monotonic()
    key = b"step%d" % step
    store.sendall(b"\\x12" + text(key) + struct.pack("<q", world))  # BARRIER
    receive(1)
    took = time.monotonic() - begin
    if rank == "0":
        store.sendall(b"\\x08" + text(b"step%d" % (step - 1)))  # DELETE_KEY
        receive(8)
        with open(folder + "/steps", "a") as file:
            file.write("%.4f\\n" % took)
    step += 1
    if rank == "0" and not told and os.path.exists(folder + "/finish"):
        told = True
        store.sendall(b"\\x01" + text(b"finish-after") + text(b"%d" % (step + 2)))  # SET
    store.sendall(b"\\x03" + text(b"finish-after"))  # GET
    size, = struct.unpack("<Q", receive(8))
    if size and step > int(receive(size)):
        sys.exit(0)
    time.sleep(0.005)
"""


class OnJob(VictimJob):
    """One job for all attacks; the methods are added below."""

    @classmethod
    def worker_text(cls):
        return WORKER

    def test_zz_the_job_ends_well_after_all_of_it(self):  # The last one by its name.
        self.ends_well()


# The attacks that cost most, and those that once stalled or ended a job. musterd_attack_test.py has all attacks.
add_tests(OnJob, "rendezvous", (
    attacks.hello_of_many_fields, attacks.multi_get_of_one_key, attacks.list_keys_unread, attacks.get_beside_append,
    attacks.long_address_of_many_nodes, attacks.forged_lines, attacks.random_bytes, attacks.node_that_reads_nothing,
    attacks.slow_loris, attacks.pickles_that_execute))
add_tests(OnJob, "store", (
    attacks.list_keys_unread, attacks.get_beside_append, attacks.gets_of_a_growing_value_unread,
    attacks.multi_get_of_one_key_most_times,
    attacks.queues_that_come_and_go_under_a_wait, attacks.requests_without_end, attacks.slow_loris))


if __name__ == "__main__":
    main()
