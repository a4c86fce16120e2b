#!/usr/bin/env python3
"""Tests that workers meet at the agent's store, however the script spells the store's host. From torch 2.14 on, a rank
0 whose script does not name MASTER_ADDR and MASTER_PORT as they are tries to host a store at the agent's port. Needs
torch; scripts/with_torch runs this test with other releases."""
import ipaddress
import socket

from support import SOURCE, MusterTest, main, python_has_torch

PYTHON = SOURCE / ".venv/bin/python"

# What init_process_group() does with its init_method, once for each spelling of the host, at the same port. Each rank
# then reads what all ranks have written.
WORKER = """
import datetime, os, sys
from torch.distributed import rendezvous
rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
stores = []
for host in sys.argv[1:]:
    url = "env://" if host == "env" else f"tcp://{host}:{port}"
    store, _, _ = next(rendezvous(url, rank, size, timeout=datetime.timedelta(seconds=60)))
    store.set(f"{host} {rank}", str(2 ** rank))
    met = sum(int(store.get(f"{host} {other}")) for other in range(size))
    os.write(1, f"met {rank} {host} {met}\\n".encode())  # At once: print() of python -u mixes its pieces with other ranks' ones.
    stores.append(store)  # A store that rank 0 hosts ends with its object.
os._exit(0)
"""


def is_loopback(name):
    """Whether the name leads to 127.0.0.1, where the store of a job of one node listens."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(name)).is_loopback
    except OSError:
        return False


class AgentStore(MusterTest):
    def environment(self, **more):
        return super().environment(PYTHON_EXEC=str(PYTHON), OMP_NUM_THREADS="1", **more)

    def test_every_spelling_of_the_host_works(self):
        if not python_has_torch(PYTHON):
            self.skipTest(f"{PYTHON} has no torch")
        names = {"env", "127.0.0.1", "localhost", socket.gethostname()}
        hosts = sorted(n for n in names if n == "env" or is_loopback(n))
        self.assertIn("127.0.0.1", hosts)
        script = self.script("meet.py", WORKER)
        _, out, _ = self.run_muster("--standalone", "--nproc-per-node=3", str(script), *hosts, expect=0)
        self.assertEqual(sorted(line for line in out.splitlines() if line.startswith("met ")),
                         sorted(f"met {rank} {host} 7" for rank in range(3) for host in hosts))


if __name__ == "__main__":
    main()
