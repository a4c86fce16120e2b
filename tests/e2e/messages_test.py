#!/usr/bin/env python3
"""The mistakes that people make, each against the real programs: every message must say what was wrong, where, and what
to do. Prints the messages one after the other for review. MUSTER_TRANSCRIPT names a file that gets them all."""
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys

from support import MUSTER, PATIENCE_S, MusterTest, main, wait_for  # Its folders of modules are needed below.
from certificates import Authority
from musterd import MUSTERD
from ports import free_port

MUSTERCTL = os.environ.get("MUSTERCTL_BIN", "musterctl")
TOKEN = "canary-token-0123456789abcdefghijklmnop"
TRANSCRIPT = os.environ.get("MUSTER_TRANSCRIPT")
NO_OVERRIDE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]  # Files' modes count for root, too.


class Mistake:
    """A command that was started by mistake, and all that it has said so far."""

    def __init__(self, test, title, words, env, before):
        self.title = title
        self.words = words
        self.env = env
        self.path = test.dir / f"said.{len(list(test.dir.glob('said.*')))}"
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen([*before, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=test.dir,
                                            env={**test.environment(), **env})
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    def text(self):
        return self.path.read_text(errors="replace")


class MessagesTest(MusterTest):
    def setUp(self):
        super().setUp()
        self.script("train.py", "print('trained')\n")
        self.port = free_port()

    def environment(self, **more):
        """Without what belongs to this machine: its scheduler, its virtual environment."""
        kept = super().environment(**{"PYTHONDONTWRITEBYTECODE": "1", **more})
        return {name: value for name, value in kept.items()
                if name in more or not re.match(r"SLURM|VIRTUAL_ENV|CONDA|OMP_|MASTER_|COLUMNS", name)}

    def begin(self, title, *words, program=MUSTER, env=None, before=()):
        return Mistake(self, title, [program, *map(str, words)], env or {}, before)

    def review(self, mistake, status):
        """Shows the message to whoever reads the test's output, without what differs each time."""
        shown = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in mistake.env.items()
                            if not name.startswith(("HOME", "XDG_"))), *map(shlex.quote, mistake.words)])
        for program in (MUSTER, MUSTERD, MUSTERCTL):
            shown = shown.replace(program, os.path.basename(program))
        text = f"\n## {mistake.title}\n$ {shown}\n{mistake.text().rstrip()}\n[status {status}]\n"
        text = text.replace(str(self.dir), "/home/me")
        print(text)
        if TRANSCRIPT:
            with open(TRANSCRIPT, "a") as file:
                file.write(text)

    def check(self, mistake, status, says, lacks=()):
        self.review(mistake, status)
        text = mistake.text()
        for words in says:
            self.assertIn(words, " ".join(text.split()), f"{mistake.title}\n{text}")
        for words in lacks:
            self.assertNotIn(words, text, mistake.title)

    def ends(self, mistake, status, *says, lacks=()):
        """The command ends by itself, with this status and these words."""
        try:
            code = mistake.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.fail(f"{mistake.title}: still there\n{mistake.text()}")
        self.check(mistake, code, says, lacks)
        self.assertEqual(code, status, f"{mistake.title}\n{mistake.text()}")

    def wrong(self, title, words, status, *says, env=None, program=MUSTER, before=(), lacks=()):
        with self.subTest(title):
            mistake = self.begin(title, *(words.split() if isinstance(words, str) else words), program=program, env=env,
                                 before=before)
            self.ends(mistake, status, *says, lacks=lacks)

    @staticmethod
    def has_ended(mistake, within_s):
        with contextlib.suppress(subprocess.TimeoutExpired):
            mistake.process.wait(within_s)
        return mistake.process.poll() is not None

    def waits(self, mistake, *says):
        """The command goes on, and says this meanwhile."""
        try:
            wait_for(lambda: all(words in " ".join(mistake.text().split()) for words in says) or
                     mistake.process.poll() is not None, "the words")
        except AssertionError:
            self.fail(f"{mistake.title} lacks some of {says}:\n{mistake.text()}")
        self.check(mistake, "it goes on" if mistake.process.poll() is None else mistake.process.returncode, says)
        self.assertIsNone(mistake.process.poll(), mistake.text())

    def listener(self):
        """The port of another program, which says nothing."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        return server.getsockname()[1]

    def musterd(self, *options, words=("listening",)):
        daemon = self.begin("musterd", *options, program=MUSTERD)
        wait_for(lambda: all(word in daemon.text() for word in words) or daemon.process.poll() is not None, "musterd")
        self.assertIsNone(daemon.process.poll(), daemon.text())
        return daemon


class Options(MessagesTest):
    def test_the_script(self):
        (self.dir / "folder").mkdir()
        self.script("locked.py", "").chmod(0)
        self.wrong("no script at all", "", 2, "the following arguments are required: training_script", "--help lists them")
        self.wrong("a script that is not there", "--standalone nosuch.py", 1, "cannot run the script 'nosuch.py': No such file")
        self.wrong("a folder", "--standalone folder", 1, "'folder'", "directory without __main__.py")
        self.wrong("an unreadable script", "--standalone locked.py", 1, "'locked.py': Permission denied", before=NO_OVERRIDE)
        self.wrong("a dash out of a web page", ["\u2014nproc-per-node=2", "train.py"], 1, "typographic dash", "was --nproc-per-node=2 meant?")
        self.wrong("an empty script name", ["--standalone", ""], 1, "the name of the script is empty")
        self.wrong("a carriage return behind the name", ["--standalone", "train.py\r"], 1, r"'train.py\r'", "No such file")
        self.wrong("a program without --no-python", "--standalone ls", 1, "--no-python")

    def test_numbers(self):
        self.wrong("workers in words", "--nproc-per-node=two train.py", 1, "--nproc-per-node is 'two'", "give a number, gpu")
        self.wrong("no worker", "--nproc-per-node=0 train.py", 1, "--nproc-per-node is '0'", "at least one worker")
        self.wrong("GPUs where there are none", "--nproc-per-node=gpu train.py", 1, "no GPU that workers could use")
        self.wrong("GPUs by number where there are none", "--nproc-per-node=gpu:0,1 train.py", 1, "--nproc-per-node", "this node shows no GPU", "give a number, cpu or auto")
        self.wrong("half a range of nodes", "--nnodes=2: train.py", 1, "--nnodes is '2:'", "MIN:MAX")
        self.wrong("a range that falls", "--nnodes=4:2 train.py", 1, "--nnodes is '4:2'")
        self.wrong("nodes in a variable", "train.py", 1, "PET_NNODES is 'x'", env={"PET_NNODES": "x"})
        self.wrong("restarts in words", "--max-restarts=many train.py", 2, "--max-restarts", "invalid int value: 'many'")
        self.wrong("a node rank that is too high", "--nnodes=2 --node-rank=5 train.py", 1, "--node-rank is 5", "from 0 to 1")
        self.wrong("alone with two nodes", "--standalone --nnodes=2 train.py", 1, "means this node alone", "leave out one")

    def test_names(self):
        self.wrong("an option with letters swapped", "--nporc-per-node=2 train.py", 2,
                   "unrecognized arguments: --nporc-per-node=2", "did you mean --nproc-per-node?")
        self.wrong("the script's option before the script", "--epochs 10 train.py", 2, "unrecognized arguments: --epochs",
                   "behind it", "muster train.py --epochs 10")
        self.wrong("muster's option behind the script", "train.py --nproc-per-node=4", 0,
                   "--nproc-per-node stands behind the script", "trained")
        self.wrong("the same with --strict", "--strict train.py --nproc-per-node=4", 1,
                   "--nproc-per-node stands behind the script")
        self.wrong("an unknown backend", "--nnodes=2 --rdzv-backend=c10 train.py", 1, "--rdzv-backend is 'c10'",
                   "did you mean c10d?", "c10d, etcd or static")
        self.wrong("an unknown setting", "--nnodes=2 --rdzv-backend=c10d --rdzv-conf=join_timout=10 train.py", 1,
                   "join_timout", "did you mean join_timeout?")
        self.wrong("a setting in words", "--nnodes=2 --rdzv-backend=c10d --rdzv-conf=join_timeout=soon train.py", 1,
                   "join_timeout", "'soon'")
        # As torchrun, which goes on without it.
        self.wrong("a signal that does not exist", "--signals-to-handle=SIGFOO train.py", 0, "there is no signal 'SIGFOO'",
                   "SIGTERM")
        self.wrong("the same with --strict", "--strict --signals-to-handle=SIGFOO train.py", 1, "there is no signal 'SIGFOO'")
        self.wrong("an option without effect", "--standalone --node-rank=3 train.py", 0, "--node-rank has no effect")
        self.wrong("the same with --strict", "--strict --standalone --node-rank=3 train.py", 1, "--node-rank has no effect")
        self.wrong("a filter that fits no rank", "--standalone --local-ranks-filter=7 train.py", 0, "--local-ranks-filter",
                   "nothing will be shown")
        self.wrong("a folder for logs that cannot be written", "--standalone --log-dir=/proc/logs --tee=3 train.py", 1,
                   "/proc/logs", "--log-dir")

    def test_endpoints(self):
        c10d = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint="
        self.wrong("an endpoint and no backend", "--nnodes=2 --rdzv-endpoint=127.0.0.1:29400 --strict train.py", 1,
                   "give --rdzv-backend c10d")
        self.wrong("the same without a port", "--nnodes=2 --rdzv-endpoint=node0 train.py", 1, "needs a port", "--rdzv-backend c10d")
        self.wrong("an endpoint with a scheme", c10d + "tcp://127.0.0.1 train.py", 1, "tcp://127.0.0.1", "give HOST:PORT", "without")
        self.wrong("an endpoint with letters for a port", c10d + "node0:abc train.py", 1, "node0:abc")
        self.wrong("a port that is too high", c10d + "node0:99999 train.py", 1, "99999")

    def test_the_wrong_python(self):
        other = self.dir / "other"
        (other / "bin").mkdir(parents=True)
        (other / "bin/python").symlink_to(sys.executable)
        self.wrong("no Python at all", "--standalone train.py", 1, "no Python was found", "PYTHON_EXEC", "Activate the environment",
                   env={"PATH": "/nowhere"})
        self.wrong("VIRTUAL_ENV and PATH name two", "--standalone train.py", 0, "VIRTUAL_ENV", "PATH",
                   env={"VIRTUAL_ENV": str(other)})

    def test_a_dry_run_of_several_nodes(self):
        """What the rendezvous decides is not made up."""
        self.wrong("--dry-run of several nodes", "--dry-run --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d "
                   "--rdzv-endpoint=node0:29400 --rdzv-id=job7 train.py", 0, "Nothing is started", "RANK='<from the rendezvous>'",
                   "WORLD_SIZE='<from the rendezvous>'", "MASTER_ADDR='<from the rendezvous>'", lacks=[" WORLD_SIZE=2", " NODE_RANK=0", "127.0.0.1"])

    def test_recipes_and_shells(self):
        self.wrong("a recipe with a letter too few", "--recipe kubernets", 2, "--recipe", "kubernetes")
        self.wrong("a shell that has no completion", "--completion ksh", 2, "--completion", "bash")
        self.wrong("a scheduler with a letter too few", "--cluster=slrm train.py", 2, "--cluster", "slurm")

    def test_several_nodes_in_silence(self):
        self.wrong("srun without --cluster", "train.py", 0, "SLURM_STEP_NUM_NODES is 2", "--cluster",
                   env={"SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0",
                        "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node[0-1]"})
        self.wrong("a pod of a job of several", "train.py", 0, "JOB_COMPLETION_INDEX", "--cluster",
                   env={"JOB_COMPLETION_INDEX": "1"})
        self.wrong("an operator's variables, one missing", "train.py", 1, "PET_NNODES is not set",
                   env={"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29500"})
        self.wrong("--cluster without a scheduler", "--cluster train.py", 1, "--cluster")


class Meeting(MessagesTest):
    def node(self, title, *words):
        return self.begin(title, *words, "train.py")

    def c10d(self, title, *words, port=None):
        return self.node(title, "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port or self.port}", "--rdzv-id=job", *words)

    def test_waits(self):
        self.waits(self.node("two nodes, and nothing else", "--nnodes=2", f"--master-port={self.port}"),
                   "waiting for node rank 1", f"127.0.0.1:{self.port}", "--node-rank", "--master-addr", "no other machine can come")
        self.waits(self.c10d("c10d on loopback", "--nnodes=2", port=free_port()), "1 more", "--rdzv-endpoint", "no other machine can come")
        self.waits(self.node("node 1 alone", "--nnodes=2", "--node-rank=1", f"--master-port={free_port()}"),
                   "waiting for node rank 0", "Connection refused")
        self.waits(self.node("a host that does not exist", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0.invalid:29400"),
                   "node0.invalid:29400", "Host not found", "is the name right?", "getent hosts node0.invalid")

    def test_a_node_that_another_one_cannot_meet(self):
        for option in ("--nnodes", "--max-restarts", "--rdzv-id"):
            with self.subTest(option):
                port = free_port()
                first, second = {"--nnodes": (["--nnodes=2"], ["--nnodes=3"]),
                                 "--max-restarts": (["--nnodes=2"], ["--nnodes=2", "--max-restarts=3"]),
                                 "--rdzv-id": (["--nnodes=2"], ["--nnodes=2", "--rdzv-id=other"])}[option]
                waiting = self.c10d(f"{option} differs: the first", *first, port=port)
                wait_for(lambda: "waiting for" in waiting.text(), "the wait")
                self.ends(self.c10d(f"{option} differs: the second", *second, port=port), 1, option)
                self.waits(waiting, "a node was refused", option)
                self.assertNotIn("store_connection_closed", waiting.text())

    def test_static_nodes_that_do_not_fit(self):
        port = f"--master-port={self.port}"
        first = self.node("two nodes with rank 0: the first", "--nnodes=2", port)
        wait_for(lambda: "waiting for" in first.text(), "the wait")
        self.ends(self.node("two nodes with rank 0: the second", "--nnodes=2", port), 1, "is it another node with --node-rank=0?")
        self.ends(self.node("another number of nodes", "--nnodes=3", "--node-rank=1", port), 1, "--nnodes=2", "--nnodes=3")
        self.ends(first, 1, "--nnodes=2", "--nnodes=3")

    def test_a_static_rank_that_comes_twice(self):
        port = f"--master-port={self.port}"
        first = self.node("a rank that comes twice: node 0", "--nnodes=3", port)
        nodes = [self.node(f"a rank that comes twice: node 1, number {i}", "--nnodes=3", "--node-rank=1", port)
                 for i in (1, 2)]
        self.waits(first, "waiting for node rank 2", "node rank 1 has come twice", "give one of them another --node-rank")
        for node in nodes:
            self.waits(node, "node rank 1 has come twice")

    def test_a_master_address_of_another_machine(self):
        self.waits(self.node("the address of rank 0 is another machine's", "--nnodes=2", "--master-addr=192.0.2.1",
                             f"--master-port={self.port}"),
                   "192.0.2.1 is no address of this machine", "is this node another rank (--node-rank)?")

    def test_something_else_at_the_port(self):
        other = self.listener()
        self.ends(self.node("the port of a static store is taken", "--nnodes=2", f"--master-port={other}"), 1,
                  f"port {other}", "another program", "ss -ltnp")
        self.ends(self.c10d("a mute program at the endpoint", "--nnodes=2", "--rdzv-conf=read_timeout=3,join_timeout=5", port=other), 1,
                  f"127.0.0.1:{other}", "another program at this port")
        self.ends(self.c10d("a dead musterd", "--nnodes=2", "--rdzv-conf=is_host=false,read_timeout=2"), 1, "Connection refused",
                  "read_timeout")
        self.ends(self.node("the port of muster --http is taken", "--nnodes=1", f"--http=127.0.0.1:{other}"), 1, f"{other}", "another program")
        http = free_port()
        self.musterd(f"--port={self.port}", f"--http=127.0.0.1:{http}", words=("HTTP at",))
        self.ends(self.c10d("HTTP's port for the rendezvous", "--nnodes=2", "--rdzv-conf=read_timeout=3,join_timeout=5", port=http), 1,
                  "HTTP", "--http")

    def test_musterd(self):
        other = self.listener()
        self.wrong("musterd's port is taken", f"--port={other}", 1, f"{other}", "ss -ltnp", program=MUSTERD)
        self.wrong("musterd's HTTP port is taken", f"--port=0 --http=127.0.0.1:{other}", 1, f"{other}", "--http", program=MUSTERD)
        self.wrong("HTTP for everybody without a token", "--port=0 --http=0.0.0.0:0", 2, "--rdzv-token-file", "ssh -L", program=MUSTERD)
        self.ends(self.node("muster's HTTP for everybody without a token", "--nnodes=1", "--rdzv-backend=c10d",
                            f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--http=0.0.0.0:0"), 1, "--http", "--rdzv-token-file")
        (self.dir / "musterd.json").write_text('{"max-kyes": 10}')
        self.wrong("a key of musterd's file with letters swapped", f"--config={self.dir}/musterd.json --check-config", 2,
                   "max-kyes", "did you mean", "max-keys", program=MUSTERD)
        self.wrong("an option of musterd with a letter too few", "--prt=29400", 2, "--port", program=MUSTERD)
        self.wrong("musterd with a limit in words", "--max-total-bytes=much", 2, "--max-total-bytes", program=MUSTERD)

    def test_tokens(self):
        def file(name, text, mode=0o600):
            (self.dir / name).write_text(text)
            (self.dir / name).chmod(mode)
            return f"--rdzv-token-file={self.dir}/{name}"
        right = file("token", TOKEN)
        self.musterd(f"--port={self.port}", right)
        job = ["--nnodes=1", "--rdzv-conf=is_host=false"]
        self.ends(self.c10d("a wrong token", *job, file("wrong", TOKEN + "x")), 1, "token")
        self.ends(self.c10d("no token", *job), 1, "--rdzv-token-file")
        self.ends(self.c10d("a short token", *job, file("short", "abc")), 1, "token", "openssl rand -hex 32")
        self.ends(self.c10d("a token that others can read", *job, file("open", TOKEN, 0o644)), 1, f"`chmod 600 {self.dir}/open`")
        self.ends(self.c10d("a token's file that is not there", *job, "--rdzv-token-file=nosuch"), 1, "nosuch", "No such file")
        self.ends(self.c10d("the right token", *job, right), 0, "trained")

    def test_tls(self):
        ours, theirs = self.dir / "ours", self.dir / "theirs"
        for folder in (ours, theirs):
            folder.mkdir()
            Authority(folder).issue("server")
        self.musterd(f"--port={self.port}", f"--tls-cert={ours}/server.pem", f"--tls-key={ours}/server.key")
        job = ["--nnodes=1", "--rdzv-conf=is_host=false"]
        self.ends(self.c10d("no TLS where there is TLS", *job), 1, "TLS", "--rdzv-tls-ca")
        self.ends(self.c10d("another CA", *job, f"--rdzv-tls-ca={theirs}/ca.pem"), 1, "certificate", "--rdzv-tls-ca")
        plain = free_port()
        self.musterd(f"--port={plain}")
        self.ends(self.c10d("TLS where there is none", *job, f"--rdzv-tls-ca={ours}/ca.pem", port=plain), 1, "TLS")


class Workers(MessagesTest):
    def fails(self, title, text, status, *says, words=(), env=None, before=(), lacks=()):
        self.script("bad.py", text)
        self.wrong(title, ["--standalone", *words, "bad.py"], status, *says, env=env, before=before, lacks=lacks)

    def test_python(self):
        self.fails("an error that is recorded", "import json, os\njson.dump({'message': {'message': 'ValueError: no', 'extraInfo': "
                   "{'py_callstack': 'the stack', 'timestamp': '0'}}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
                   "raise SystemExit(1)\n", 1, "the stack")
        self.fails("a syntax error", "print(\n", 1, "SyntaxError", "bad.py")
        self.fails("a module that is not there", "import nosuch_module\n", 1, "No module named 'nosuch_module'")
        self.fails("torch is not installed", "import sys; sys.modules['torch'] = None\nimport torch\n", 1, "torch")
        self.fails("no memory", "x = bytearray(1 << 33)\n", 1, "MemoryError",
                   before=["prlimit", "--as=4294967296"])

    def test_signals(self):
        advice = "To enable traceback see"
        self.fails("a segfault", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n", 1, "SIGSEGV", "core", lacks=[advice])
        self.script("wait.py", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")

        def worker(mistake):
            wait_for(lambda: self.read("pid") or mistake.process.poll() is not None, "the worker")
            pid = int(self.read("pid"))
            (self.dir / "pid").unlink()
            return pid
        killed = self.begin("kill -9 of a worker", "--standalone", "wait.py")
        os.kill(worker(killed), signal.SIGKILL)
        self.ends(killed, 1, "SIGKILL", "not muster", lacks=[advice])
        hangs = self.begin("a worker that hangs", "--standalone", "--hang-timeout=2", "wait.py")
        self.ends(hangs, 1, "--hang-timeout", "stacks", lacks=[advice])
        (self.dir / "pid").unlink()
        self.script("slow_python", "#!/bin/sh\necho > starting\nexec sleep 1000\n").chmod(0o755)
        starting = self.begin("ctrl-C while Python starts", "--standalone", "wait.py", env={"PYTHON_EXEC": str(self.dir / "slow_python")})
        wait_for((self.dir / "starting").exists, "the slow Python")
        starting.process.send_signal(signal.SIGINT)
        self.ends(starting, 1, "Received 2 death signal (SIGINT): stopping the workers")
        stopped = self.begin("ctrl-C", "--standalone", "wait.py")
        worker(stopped)
        stopped.process.send_signal(signal.SIGINT)
        self.ends(stopped, 1, "Received 2 death signal (SIGINT): stopping the workers", "a second signal kills them at once")
        self.script("stubborn.py", "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
        stubborn = self.begin("ctrl-C, and a worker that does not end", "--standalone", "--shutdown-timeout=600", "stubborn.py")
        worker(stubborn)
        stubborn.process.send_signal(signal.SIGINT)
        self.waits(stubborn, "SIGINT", "SIGKILL", "a second signal")
        # Two signals at almost the same time are one.
        wait_for(lambda: stubborn.process.send_signal(signal.SIGINT) or self.has_ended(stubborn, 1), "the end")
        self.ends(stubborn, 1, "Received 2 death signal (SIGINT) again: killing the workers")
        waiting = self.begin("ctrl-C while it waits", "--nnodes=2", f"--master-port={self.port}", "wait.py")
        wait_for(lambda: "waiting for" in waiting.text(), "the wait")
        waiting.process.send_signal(signal.SIGINT)
        self.ends(waiting, -signal.SIGINT)
        gone = self.begin("kill -9 of muster", "--standalone", "wait.py")
        worker(gone)
        gone.process.kill()
        self.ends(gone, -signal.SIGKILL)
        self.assert_nothing_left()

    def test_a_rank_that_connects_where_nobody_answers(self):
        # A server whose queue is full drops further connections, as a firewall does.
        server = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(server.close)
        port = server.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        self.script("knock.py", "import os, socket\nos.environ['MASTER_PORT'] = str(%d)\n"
                    "socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n" % port)
        self.waits(self.begin("a MASTER_PORT of the script's own that does not answer", "--standalone", "knock.py"),
                   "local rank 0 (pid ", f"tries to connect to 127.0.0.1:{port}, which does not answer",
                   "leave MASTER_ADDR and MASTER_PORT as they are")

    def test_a_full_disk(self):
        disk = self.dir / "disk"
        disk.mkdir()
        if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False,
                                              capture_output=True).returncode != 0:
            self.skipTest("mounts need root")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], check=False)
        text = "for i in range(20000): print('a line of a log that is far too long', i)\n"
        for rule, status in (("drop", 0), ("fail", 1)):
            shutil.rmtree(disk / "logs", ignore_errors=True)
            self.fails(f"a full disk, --log-on-full={rule}", text, status, "full", str(disk), "--log-on-full",
                       words=[f"--log-dir={disk}/logs", "--redirects=3", f"--log-on-full={rule}"])


class Control(MessagesTest):
    def ctl(self, title, words, status, *says, lacks=()):
        self.wrong(title, words, status, *says, program=MUSTERCTL, lacks=lacks,
                   env={"MUSTER_ENDPOINT": f"127.0.0.1:{self.http}", "HOME": str(self.dir), "XDG_CONFIG_HOME": ""})

    def setUp(self):
        super().setUp()
        self.http = free_port()

    def test_without_a_musterd(self):
        self.ctl("musterctl alone", "", 2, "runs", "status", "no command is given")
        self.ctl("a command with letters swapped", "stauts", 2, "there is no command stauts", "did you mean", "status")
        self.ctl("an option that does not exist", "runs --jsn", 2, "--jsn", "--json")
        self.ctl("a rank in words", "logs job first", 2, "'first' is no rank", "musterctl nodes")
        self.ctl("no musterd there", "runs", 3, f"127.0.0.1:{self.http}", "onnection refused", "musterd --http")
        self.ctl("a port in words", "runs --endpoint=node0:http", 2, "node0:http")
        self.ctl("the machine's check of a name that is unknown", "doctor --quick --rdzv-endpoint=nohost.invalid:29400", 1,
                 "nohost.invalid", "getent hosts nohost.invalid")

    def test_with_a_musterd(self):
        self.musterd(f"--port={self.port}", f"--http=127.0.0.1:{self.http}", words=("HTTP at",))
        self.ctl("no run", "status", 4, "this musterd has no runs")
        self.ctl("a link to a page that needs none", "open", 0, f"http://127.0.0.1:{self.http}/", "asks for no login")
        self.ctl("a run that nobody knows", "why night-job", 4, "no run 'night-job' is known here")
        self.ctl("the rendezvous' port for HTTP", f"runs --endpoint=127.0.0.1:{self.port}", 3, "the port where nodes meet", "--http")
        job = ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-conf=is_host=false"]
        self.script("wait.py", "import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
        running = self.begin("a job without --tee", *job, "--rdzv-id=walk", "wait.py")
        wait_for(lambda: "begun" in running.text(), "the worker")
        self.ctl("the log of a rank that goes to a console", "logs walk 0", 1, "--tee=3")
        self.ctl("a rank that the run does not have", "logs walk 7", 1, "rank 7")
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(PATIENCE_S)
        self.script("bad.py", "raise FileNotFoundError('shard-00041.tar')\n")
        self.ends(self.begin("a job that fails", *job, "--rdzv-id=night-job", "bad.py"), 1, "shard-00041.tar")
        self.ctl("why it failed", "why night-job", 0, "shard-00041.tar")
        self.ctl("a run that has not begun", "why short", 4, "no run 'short' is known here")
        self.ends(self.begin("a job that ends at once", *job, "--rdzv-id=short", "--no-python", "false"), 1, "exitcode : 1")
        self.ctl("why it failed, asked at once", "why short", 0, "exited with 1")
        self.ctl("the log of a run that has ended", "logs night-job 0", 1, "the run has ended", "rank 0 was on 127.0.0.1_", "--log-dir")
        self.ctl("the log of another rank of that run", "logs night-job 5", 1, "the run has ended", "its nodes were 127.0.0.1_", "--log-dir")
        self.ctl("the nodes of a run that has ended", "nodes night-job", 0, "no node is in this run now")


if __name__ == "__main__":
    if TRANSCRIPT:
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(TRANSCRIPT).unlink()
    main()
