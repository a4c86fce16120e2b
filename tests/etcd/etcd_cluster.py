"""A real etcd on loopback, whose members can be killed and started again."""
import base64
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port
from support import wait_for

ETCD = os.environ.get("MUSTER_ETCD", "etcd")


def have_etcd():
    return shutil.which(ETCD) is not None


def text_of(data):
    return base64.b64encode(data.encode()).decode()


class EtcdCluster:
    def __init__(self, size, quota_bytes=1 << 26, options=(), authority=None, client_certificates=True, hosts=("127.0.0.1",)):
        """authority: a CA that has issued "server" for the members and "node" for the test. Clients
        must use TLS and, if client_certificates, show a certificate of this CA. hosts: the
        addresses at which the members listen."""
        self.quota_bytes = quota_bytes
        self.options = list(options)
        self.hosts = hosts
        self.scheme = "http"
        self.context = None
        if authority:
            self.scheme = "https"
            self.trust(authority)
            if client_certificates:
                self.options += ["--client-cert-auth", f"--trusted-ca-file={authority.path('ca.pem')}"]
            self.options += [f"--cert-file={authority.path('server.pem')}", f"--key-file={authority.path('server.key')}"]
        self.token = None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-etcd-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK)
                                                 else None))
        self.clients = [free_port() for _ in range(size)]
        self.peers = [free_port() for _ in range(size)]
        self.members = [None] * size
        for number in range(size):
            self.start(number)
        self.wait_healthy()

    def trust(self, authority):
        self.context = ssl.create_default_context(cafile=str(authority.path("ca.pem")))
        self.context.load_cert_chain(authority.path("node.pem"), authority.path("node.key"))

    def start(self, number):
        client = ",".join(f"{self.scheme}://{host}:{self.clients[number]}" for host in self.hosts)
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        with open(self.dir / f"err.{number}", "ab") as err:
            self.members[number] = subprocess.Popen(
                [ETCD, f"--name=m{number}", f"--data-dir={self.dir}/data.{number}",
                 f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                 f"--listen-peer-urls=http://127.0.0.1:{self.peers[number]}",
                 f"--initial-advertise-peer-urls=http://127.0.0.1:{self.peers[number]}",
                 f"--initial-cluster={cluster}", f"--quota-backend-bytes={self.quota_bytes}", *self.options],
                stdin=subprocess.DEVNULL, stdout=err, stderr=err)

    def kill(self, number):
        self.members[number].send_signal(signal.SIGKILL)
        self.members[number].wait()

    def close(self):
        for member in self.members:
            member.kill()
            member.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def ask(self, path, body, number=0):
        """The member's answer; None if it does not answer or refuses."""
        return self._answer_or_error(path, body, number)[0]

    def must(self, path, body, done="an answer"):
        """Asks until etcd answers, so the request must be one that may be applied twice. An error
        with the text `done` says that an earlier try was applied: the answer is {}."""
        def answered():
            answer, error = self._answer_or_error(path, body)
            return {"answer": {} if done in error else answer} if answer is not None or done in error else None
        return wait_for(answered, f"etcd's {path}")["answer"]

    def _answer_or_error(self, path, body, number=0):
        """(The answer, ""), or (None, what went wrong). Logs in again if etcd has dropped the token, which
        it does if the token was not used for a while, or after a change of the users."""
        answer, error = self._ask_once(path, body, number)
        if self.token and "invalid auth token" in error:
            self.log_in()
            answer, error = self._ask_once(path, body, number)
        return answer, error

    def _ask_once(self, path, body, number):
        request = urllib.request.Request(f"{self.scheme}://127.0.0.1:{self.clients[number]}/v3/{path}",
                                         json.dumps(body).encode(), {"Content-Type": "application/json"})
        if self.token:
            request.add_header("Authorization", self.token)
        try:
            with urllib.request.urlopen(request, timeout=5, context=self.context) as answer:
                return json.load(answer), ""
        except urllib.error.HTTPError as error:
            with error:
                return None, f"{error}: {self._text_of(error)}"
        except OSError as error:  # urllib's other errors too.
            return None, str(error)

    @staticmethod
    def _text_of(answer):
        try:
            return answer.read().decode(errors="replace")
        except OSError as error:
            return str(error)

    def wait_healthy(self):
        for number in range(len(self.members)):
            wait_for(lambda number=number: self.ask("kv/range", {"key": text_of("x")}, number), f"etcd member {number}")

    def leader(self):
        """The number of the member that leads."""
        def find():
            for number in range(len(self.members)):
                status = self.ask("maintenance/status", {}, number)
                if status and status.get("leader") == status["header"]["member_id"]:
                    return number + 1
            return 0
        return wait_for(find, "a leader of etcd") - 1

    def keys(self, prefix):
        """{key: value} of all keys that begin with `prefix`, which ends with a slash."""
        folder = {"key": text_of(prefix), "range_end": text_of(prefix[:-1] + "0")}
        found = self.must("kv/range", folder)
        decode = base64.b64decode
        return {decode(entry["key"]).decode(): decode(entry.get("value", "")).decode()
                for entry in found.get("kvs", [])}

    def entry(self, key):
        """etcd's entry for the key, with its lease; None if there is no such key."""
        return next(iter(self.must("kv/range", {"key": text_of(key)}).get("kvs", [])), None)

    def ask_for_passwords(self, user, password, prefix):
        """Makes etcd require passwords. The user may do everything with keys that begin with the
        prefix, and nothing else."""
        for name, secret in (("root", "of the test"), (user, password)):
            self.add_user(name, secret)
        for role in ("root", "role"):
            self.must("auth/role/add", {"name": role}, done="role name already exists")
        self.must("auth/role/grant", {"name": "role", "perm": {"permType": "READWRITE", "key": text_of(prefix),
                                                               "range_end": text_of(prefix[:-1] + "0")}})
        self.must("auth/user/grant", {"user": "root", "role": "root"})
        self.must("auth/user/grant", {"user": user, "role": "role"})
        self.must("auth/enable", {}, done="user name is empty")  # etcd says so if it wants a password already.
        self.log_in()

    def add_user(self, name, password):
        self.must("auth/user/add", {"name": name, "password": password}, done="user name already exists")

    def log_in(self):
        self.token = None
        self.token = wait_for(lambda: self.ask("auth/authenticate", {"name": "root", "password": "of the test"}),
                              "a token")["token"]

    def put(self, key, value):
        self.must("kv/put", {"key": text_of(key), "value": text_of(value)})

    def fill(self, prefix):
        """Writes values until etcd has no space for more."""
        full = "database space exceeded"
        number = 0
        while self.must("kv/put", {"key": text_of(f"{prefix}{number}"), "value": text_of("x" * 500_000)}, done=full):
            number += 1

    def empty(self, prefix):
        """Frees the space as etcd's operators do."""
        end = text_of(prefix[:-1] + "0")
        self.must("kv/deleterange", {"key": text_of(prefix), "range_end": end})
        revision = self.must("kv/range", {"key": text_of("x")})["header"]["revision"]
        self.must("kv/compaction", {"revision": revision, "physical": True}, done="has been compacted")
        self.must("maintenance/defragment", {})
        for alarm in self.must("maintenance/alarm", {"action": "GET"}).get("alarms", []):
            self.must("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})

    def delete(self, key):
        self.must("kv/deleterange", {"key": text_of(key)})
