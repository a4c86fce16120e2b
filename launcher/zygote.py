# The program behind muster --warm. It runs twice, in one process that the shim has started:
#   python -u -c THIS_TEXT SCRIPT ARGUMENTS...   checks the interpreter and executes it again, as
#   python -u SCRIPT ARGUMENTS...                where `site` imports this text as sitecustomize.
# There it does the imports, and forks a worker for each request of the shim. Only in a worker the
# module ends; the interpreter then runs the script as it does in a cold start.
# Descriptor 0 of the first run is the socket to the shim. docs/warm.md has the rules.
import gc
import os
import sys

HOOKED = 77  # The exit status by which the probe says that `site` has imported this text.
# The values of these differ between workers and attempts: an import must not see one of them.
OF_ONE_WORKER = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE",
                 "ROLE_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
                 "TORCHELASTIC_ERROR_FILE", "MUSTER_GENERATION")
# Native code reads these when it is loaded. Reads by Python code are recorded instead.
READ_BY_NATIVE_CODE = ("PYTHON", "LD_", "OMP_", "KMP_", "GOMP_", "NCCL_", "TORCH_", "PYTORCH_",
                       "HF_", "TRANSFORMERS_", "CUDA_", "MALLOC_", "GLIBC_")
# The first two are read when CUDA or HIP is initialised, which no import may do; set_threads() cares
# for the third.
NOT_AT_LOAD = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS")
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# They change other modules when the script calls them, which must be before those are imported.
PATCHERS = {"gevent", "eventlet"}
DEFAULT_MODULES = ("numpy", "torch", "torch.distributed", "torch._dynamo")
SIGNALS_OF_LIBC = 3 << 31  # In a mask of signals: glibc handles 32 and 33 itself, from its first thread on.
# Of process_state(): what execve() does not pass on.
NOT_PASSED_ON = {"the handlers of signals", "the open files", "sys.path", "sys.stdin, stdout or stderr"}
MAX_SOURCES = 500
MAX_WITHOUT = 8
MAX_SOURCE_BYTES = 4 << 20
REPARENT_SECONDS = 5
MANY_OBJECTS = 10_000_000  # So many are not left by imports. An import may take a multiple of it.
OOM_SCORE = "/proc/self/oom_score_adj"
MOST_OOM_SCORE = "1000"


def send(socket, kind, text=""):
    socket.send(kind + text.encode(errors="replace")[:150])


class Refusal(Exception):
    """Why no worker may come from this zygote."""


# --- the first run ----------------------------------------------------------------------------

def execute_again():
    import importlib.util
    import json
    import marshal
    import zipfile

    if sys.version_info < (3, 10):
        raise Refusal("it needs Python 3.10 or newer")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise Refusal("this Python ignores PYTHONPATH or has no site module")
    at = sys.orig_argv.index("-c")
    memory = os.memfd_create("muster-zygote", 0)
    with os.fdopen(os.dup(memory), "wb") as file, zipfile.ZipFile(file, "w") as archive:
        # Compiled, with the header of a .pyc file: there are two imports of it.
        code = compile(sys.orig_argv[at + 1], "sitecustomize.py", "exec")
        archive.writestr("sitecustomize.pyc", importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
    environment = dict(os.environb)
    setup = {"hook": f"/proc/self/fd/{memory}", "memory": memory, "comm": read("/proc/self/comm"),
             "modules": os.environ.get("MUSTER_ZYGOTE", ""),
             "path": os.environ.get("PYTHONPATH"), "socket": os.dup(0), "without": [], "collects": False}
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    path = setup["hook"] + (":" + setup["path"] if setup["path"] else "")
    environment[b"PYTHONPATH"] = os.fsencode(path)
    environment[b"MUSTER_ZYGOTE"] = json.dumps({**setup, "probe": True}).encode()
    for name in ONE_THREAD:
        setup[name] = os.environ.get(name)
        environment[name.encode()] = b"1"
    for name in OF_ONE_WORKER:
        environment.pop(name.encode(), None)
    # Without the hook, the second run would be the script itself.
    probe = os.posix_spawn(sys.executable, [sys.executable, *sys.orig_argv[1:at], "-c", "raise SystemExit(1)"],
                           environment)
    if os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1]) != HOOKED:
        raise Refusal("this Python does not import sitecustomize from PYTHONPATH")
    os.set_inheritable(setup["socket"], True)
    environment[b"MUSTER_ZYGOTE"] = json.dumps(setup).encode()
    os.execve(sys.executable, sys.orig_argv[:at] + sys.orig_argv[at + 2:], environment)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")


def first_run():
    shim = os.dup(0)
    try:
        execute_again()
    except BaseException as error:  # The process must end here, whatever happens.
        import socket
        send(socket.socket(fileno=shim), b"N", str(error) or type(error).__name__)
    finally:
        os._exit(1)


# --- the second run: what the script imports --------------------------------------------------

def script_path(argv, safe_path):
    """The script's source, and the folder that Python puts first into sys.path."""
    words = argv[1:]
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words = words[1:]  # Options of the interpreter: a word with a value of its own has no file.
    folder = None
    source = None
    if words and words[0] == "-m" and len(words) > 1:
        folder = os.getcwd()
        base = os.path.join(folder, *words[1].split("."))
        source = next((p for p in (base + ".py", os.path.join(base, "__main__.py"))
                       if os.path.isfile(p)), None)
    elif words and words[0] == "-c" and len(words) > 2:  # muster's own program of --run-path.
        source = os.path.realpath(words[2])
        folder = os.path.dirname(source)
    elif words:
        source = os.path.realpath(words[0])
        if os.path.isdir(source) or not source.endswith(".py"):
            folder = source if os.path.isdir(source) else os.path.dirname(source)
            main = os.path.join(source, "__main__.py")
            source = main if os.path.isfile(main) else source
        else:
            folder = os.path.dirname(source)
    return source, None if safe_path else folder


def entries(folder):
    """The names of the modules that a folder in sys.path provides."""
    names = set()
    for name in os.listdir(folder) if folder and os.path.isdir(folder) else ():
        stem = name.split(".")[0]
        if name.endswith((".py", ".so", ".pyc")) or os.path.isdir(os.path.join(folder, name)):
            names.add(stem)
    return names


def parse(path):
    import ast
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(MAX_SOURCE_BYTES))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.Module([], [])


def imports_of(tree):
    import ast
    found = []
    blocks = [tree.body]
    while blocks:
        for node in blocks.pop():
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.append(node.module)
            elif isinstance(node, ast.Try):
                blocks.append(node.body)
    return found


def run_at_once(tree):
    """The nodes that run when the module does: those outside of functions."""
    import ast
    nodes = list(tree.body)
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            nodes += ast.iter_child_nodes(node)


def named(node, *names):
    """Whether the expression is names[0].names[1], such as os.environ."""
    import ast
    return (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) == names)


def changes_before_imports(tree):
    """What the module changes when it runs, and what an import may depend on: names of variables
    (None: which ones is unknown), and whether it changes sys.path so that other modules are
    found."""
    import ast
    variables = set()
    has_path = False

    def constant(node):
        return node.value if isinstance(node, ast.Constant) else None

    for node in run_at_once(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if named(node.value, "os", "environ"):
                variables.add(constant(node.slice))
            has_path |= named(node.value, "sys", "path")
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            has_path |= named(node, "sys", "path")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if named(node.func, "os", "putenv") or (
                    named(node.func.value, "os", "environ")
                    and node.func.attr in ("setdefault", "pop", "update", "clear", "popitem")):
                variables.add(constant(node.args[0]) if node.args else None)
            has_path |= named(node.func.value, "sys", "path") and node.func.attr != "append"
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "sys"):
            if {"environ", "putenv"} & {alias.name for alias in node.names}:
                variables.add(None)
            has_path |= "path" in {alias.name for alias in node.names} and node.module == "sys"
    return variables, has_path


def wanted_modules(source, folder, more):
    beside = entries(folder)
    names = list(DEFAULT_MODULES) + [name for name in more.split(",") if name]
    queue = [source] if source else []
    seen = set()
    variables = {}
    while queue and len(seen) < MAX_SOURCES:
        path = queue.pop(0)
        if path in seen:
            continue
        seen.add(path)
        tree = parse(path)
        changed, has_path = changes_before_imports(tree)
        if has_path:
            raise Refusal(f"{path} changes sys.path, and so what its imports find")
        variables.update(dict.fromkeys(changed, path))
        for name in imports_of(tree):
            if name.split(".")[0] in PATCHERS:
                raise Refusal(f"{path} imports {name}, which changes other modules")
            if name.split(".")[0] not in beside:
                names.append(name)
                continue
            base = os.path.join(folder, *name.split("."))
            queue += [p for p in (base + ".py", os.path.join(base, "__init__.py"))
                      if os.path.isfile(p)]
    if queue:
        raise Refusal(f"more than {MAX_SOURCES} modules are beside the script")
    return variables, [
        name for name in dict.fromkeys(names)
        if name.split(".")[0] not in beside | {"__main__", "sitecustomize", "usercustomize"}]


# --- the second run: what an import may not do ------------------------------------------------

def count_threads():
    return len(os.listdir("/proc/self/task"))


def open_files(without=None):
    files = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # The descriptor of the listing itself.
        if without is None or not path.startswith(without):
            files[int(fd)] = path
    return files


def has_children():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def process_state(paths):
    """What a module may not change in the zygote: the interpreter or the script, which run later, would
    see the change too early or undo it. Of sys.path only the first `paths` entries: an append does no
    harm."""
    import _signal
    status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
    return {
        "the working folder": os.readlink("/proc/self/cwd"),
        "the umask": status["Umask"],
        "the handlers of signals": ({number: _signal.getsignal(number) for number in _signal.valid_signals()},
                                    int(status["SigCgt"], 16) & ~SIGNALS_OF_LIBC),
        "the signals that are blocked or ignored": (_signal.pthread_sigmask(_signal.SIG_BLOCK, ()), status["SigIgn"]),
        "the CPUs": os.sched_getaffinity(0),
        "the limits": read("/proc/self/limits"),
        # Workers would share the position in the file.
        "the open files": open_files(without="/dev/"),
        "sys.path": sys.path[:paths],
        "sys.stdin, stdout or stderr": (sys.stdin, sys.stdout, sys.stderr),
    }


def restore_process(state):
    """What execve() passes on, but for the limits."""
    import _signal
    os.chdir(state["the working folder"])
    os.umask(int(state["the umask"], 8))
    os.sched_setaffinity(0, state["the CPUs"])
    for number, handler in state["the handlers of signals"][0].items():
        if handler is not None and handler != _signal.getsignal(number):
            _signal.signal(number, handler)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, state["the signals that are blocked or ignored"][0])
    for fd in open_files(without="/dev/").keys() - state["the open files"].keys():
        os.set_inheritable(fd, False)


def differences(state, other):
    return [what for what, value in state.items() if value != other[what]]


def stamp(path):
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def may_differ(name):
    """Whether a variable may have another value in a worker than the zygote was started with."""
    return name in OF_ONE_WORKER + NOT_AT_LOAD or name.startswith(("TORCHELASTIC_", "MUSTER_"))


class RecordedReads:
    """Records which variables Python code reads from os.environ."""

    def __init__(self):
        self.names = set()
        self.kind = type(os.environ)
        self.getter = self.kind.__getitem__

    def __enter__(self):
        getter, names = self.getter, self.names

        def record(environment, name):
            names.add(name)
            return getter(environment, name)

        self.kind.__getitem__ = record
        return self

    def __exit__(self, *_):
        self.kind.__getitem__ = self.getter


class PausedCollector:
    """Keeps the garbage collector from running: with torch, collections are a quarter of the imports'
    time. gc.disable() is left to the imports."""

    def __enter__(self):
        self.thresholds = gc.get_threshold()
        gc.set_threshold(MANY_OBJECTS, *self.thresholds[1:])
        self.paused = gc.get_threshold()
        return self

    def __exit__(self, *_):
        self.is_disturbed = gc.get_threshold() != self.paused
        # A worker's collections, and those at its end, leave out what the imports have made: with torch,
        # they would take half a second, and write to all pages that the workers share.
        gc.freeze()
        gc.set_threshold(*self.thresholds)


class Zygote:
    def __init__(self, setup):
        import socket
        self.setup = setup
        self.shim = socket.socket(fileno=setup["socket"])
        self.shim_pid = os.getppid()
        set_name("muster-zygote")
        self.argv = list(sys.orig_argv)
        self.started_with = dict(os.environb)
        self.restore_environment()
        self.given = {os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()}
        for name in ONE_THREAD:
            if setup[name] is None:
                self.given.pop(name, None)
            else:
                self.given[name] = setup[name]
        self.seen = dict(os.environ)  # What the imports see.
        self.source, self.folder = script_path(self.argv, getattr(sys.flags, "safe_path", False))
        self.reads = set()
        self.stamps = {}
        self.checked_attempt = None

    def restore_environment(self):
        """Removes what made `site` import this module."""
        del os.environ["MUSTER_ZYGOTE"]
        if self.setup["path"] is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = self.setup["path"]
        sys.path[:] = [path for path in sys.path if path != self.setup["hook"]]
        sys.path_importer_cache.pop(self.setup["hook"], None)
        # Open for begin_without(), until the imports are done.
        os.set_inheritable(self.setup["memory"], True)
        # Python code reads what a worker has. Only native code, which asks the C library, must see 1.
        for name in ONE_THREAD:
            if self.setup[name] is None:
                os.environ._data.pop(name.encode(), None)
            else:
                os.environ._data[name.encode()] = os.fsencode(self.setup[name])

    # Imports.

    def preload(self):
        before = open_files()
        self.baseline = set(self.setup["baseline"])
        if self.setup["collects"]:
            variables = self.import_modules(before)
        else:
            with PausedCollector() as collector:
                variables = self.import_modules(before)
            if collector.is_disturbed:
                self.begin_again(collects=True)
        for name, path in variables.items():
            if name is None:
                raise Refusal(f"{path} changes os.environ, and so what its imports read")
            if name in self.reads or (name.startswith(READ_BY_NATIVE_CODE)
                                      and name != "CUDA_VISIBLE_DEVICES"):
                raise Refusal(f"{path} changes {name}, which an imported module reads")
        self.set_by_imports = {name: value for name, value in os.environ.items()
                               if self.seen.get(name) != value}
        self.removed_by_imports = self.seen.keys() - os.environ.keys()
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and os.path.isabs(path) and stamp(path):
                self.stamps[path] = stamp(path)
        self.stamps[sys.executable] = stamp(sys.executable)
        os.close(self.setup["memory"])

    def import_modules(self, before):
        """Returns what the script and its modules change before imports: variables, each with the file."""
        import importlib
        with RecordedReads() as recorded:
            import_own_sitecustomize()
            known = recorded.names & set(OF_ONE_WORKER)  # Read by a sitecustomize: no module to blame.
            variables, names = wanted_modules(self.source, self.folder, self.setup["modules"])
            paths = len(sys.path)
            state = process_state(paths)
            for name in names:
                if name.split(".")[0] in self.setup["without"]:
                    continue
                try:
                    importlib.import_module(name)
                except ImportError as error:
                    # The worker meets the same error, if it imports the module.
                    if name in self.setup["modules"].split(","):
                        raise Refusal(f"--warm-modules {name}: {error}")
                except Exception as error:
                    raise Refusal(f"the import of {name} failed: {type(error).__name__}: {error}")
                self.check_import(name, before)
                reads_of_one = recorded.names & set(OF_ONE_WORKER)
                if reads_of_one - known and not known:
                    self.begin_without(name)
                known |= reads_of_one
                if changed := differences(process_state(paths), state):
                    restore_process(state)
                    if set(differences(process_state(paths), state)) <= NOT_PASSED_ON:
                        self.begin_without(name)
                    raise Refusal(f"{name} has changed {changed[0]} while it was imported")
        self.reads = recorded.names
        return variables

    def begin_without(self, name):
        """Leaves this module to the workers, if that is possible."""
        without = self.setup["without"]
        if len(without) < MAX_WITHOUT and name not in DEFAULT_MODULES:
            self.begin_again(without=[*without, name.split(".")[0]])

    def begin_again(self, **changes):
        """An import cannot be undone: the interpreter begins again, with a changed setup."""
        import json
        setup = {name: value for name, value in self.setup.items() if name != "baseline"}
        environment = {**self.started_with, b"MUSTER_ZYGOTE": json.dumps({**setup, **changes}).encode()}
        self.shim.set_inheritable(True)
        os.execve(sys.executable, self.argv, environment)

    def check_import(self, name, before):
        if count_threads() > 1:
            raise Refusal(f"{name} has started a thread while it was imported")
        if uses_cuda():
            raise Refusal(f"{name} has initialised CUDA while it was imported")
        if has_children():
            raise Refusal(f"{name} has started a process while it was imported")
        for fd, path in open_files().items():
            if fd not in before and path.startswith(("socket:", "pipe:", "anon_inode:")):
                raise Refusal(f"{name} has opened a {path.split(':')[0]} while it was imported")

    # Requests.

    def problem(self, request):
        """(kind, reason): why a worker may not come from this zygote; None: it may."""
        if count_threads() > 1:
            return b"N", f"{count_threads()} threads run in the zygote"
        if uses_cuda():
            return b"N", "CUDA is initialised in the zygote"
        count = len(sys.argv) - 1
        head = len(self.argv) - count
        if request.argv[0] != self.argv[0]:
            return b"N", f"{request.argv[0]} is a wrapper: set PYTHON_EXEC to {sys.executable}"
        if len(request.argv) != len(self.argv) or request.argv[:head] != self.argv[:head]:
            return b"N", "the command line differs from the zygote's"
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            if request.environment.get(name, "1") != "1":
                return b"N", f"{name} is not 1"
        for name in sorted(self.reads):
            if self.seen.get(name) != request.environment.get(name):
                if name in OF_ONE_WORKER or name in ONE_THREAD:
                    return b"N", f"an imported module reads {name}, which a worker has otherwise"
                return b"S", f"{name} has changed, and an imported module has read it"
        for name in sorted(self.given.keys() | request.environment.keys()):
            if self.given.get(name) != request.environment.get(name) and not may_differ(name):
                if name.startswith(READ_BY_NATIVE_CODE):
                    return b"S", f"{name} has changed"
                return b"N", f"{name} is another one in the zygote: a wrapper or a plug-in sets it"
        return self.changed_files(request)

    def changed_files(self, request):
        if request.attempt == self.checked_attempt:
            return None
        hidden = sorted((entries(self.folder) & {name.split(".")[0] for name in sys.modules})
                        - self.baseline)
        if hidden:
            return b"N", f"{hidden[0]} in {self.folder} has the name of an imported module"
        for path, before in self.stamps.items():
            if stamp(path) != before:
                return b"S", f"{path} has changed"
        self.checked_attempt = request.attempt
        return None

    def offer_to_oom_killer(self):
        """Where memory runs out, the kernel kills the zygote before a worker. A fork takes the old score back: if
        that is not permitted, it would have this one."""
        self.oom_score = read(OOM_SCORE)
        for score in (MOST_OOM_SCORE, self.oom_score, MOST_OOM_SCORE):
            try:
                set_oom_score(score)
            except OSError as error:
                raise Refusal(f"{OOM_SCORE} cannot be set: {error.strerror}")

    def serve(self):
        """Forks workers. Returns in each of them."""
        send(self.shim, b"R")
        while True:
            request = receive(self.shim)
            if request is None:
                os._exit(0)
            while self.reap():
                pass
            found = self.problem(request)
            if found:
                send(self.shim, *found)
                request.close()
                continue
            try:
                child = os.fork()
            except OSError as error:  # No process or no memory is left.
                send(self.shim, b"S", f"the zygote cannot fork: {error.strerror}")
                request.close()
                continue
            if child == 0:
                try:
                    return self.become_worker(request)
                except BaseException:  # The shim sees the end of the control socket.
                    os._exit(1)
            request.close()

    def reap(self):
        try:
            return os.waitpid(-1, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return False

    # The worker.

    def become_worker(self, request):
        import signal
        set_oom_score(self.oom_score)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        between = os.getpid()
        if os.fork() != 0:
            os._exit(0)
        # The process between has ended when the worker gets this signal: the shim is a subreaper,
        # and now the parent.
        prctl(1, signal.SIGUSR1)  # PR_SET_PDEATHSIG
        limit = REPARENT_SECONDS if os.getppid() == between else 0
        signal.sigtimedwait({signal.SIGUSR1}, limit)
        prctl(1, signal.SIGKILL)
        if os.getppid() != self.shim_pid:
            os._exit(1)
        os.setsid()
        prctl(0x59616d61, self.shim_pid)  # PR_SET_PTRACER
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        set_name(self.setup["comm"])
        for target, fd in enumerate(request.streams):
            os.dup2(fd, target)
        renew_streams()
        self.shim.close()
        self.set_arguments(request)
        self.set_environment(request)
        renew_identity()
        set_threads(request.environment.get("OMP_NUM_THREADS"))
        control = request.keep_control()
        control.send(b"P")
        if control.recv(1) != b"G":
            os._exit(1)
        control.close()

    def set_arguments(self, request):
        count = len(sys.argv) - 1
        if count:
            sys.argv[1:] = request.argv[-count:]
            sys.orig_argv[-count:] = request.argv[-count:]

    def set_environment(self, request):
        os.environ.clear()
        for name in ONE_THREAD:  # See restore_environment().
            os.unsetenv(name)
        for name, value in request.pairs:
            os.environb[name] = value
        os.environ.update(self.set_by_imports)
        for name in self.removed_by_imports:
            os.environ.pop(name, None)
        show_in_proc([os.fsencode(word) for word in request.argv] if request.argv != self.argv
                     else None, [name + b"=" + value for name, value in request.pairs])


def uses_cuda():
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return True
    return any(path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))
               for path in open_files().values())


class Request:
    """A worker to start: see agent/posix/warm_starts.cc."""

    def __init__(self, attempt, fds):
        import struct
        self.attempt = attempt
        self.fds = fds  # The command, the control socket, stdin, stdout, stderr.
        self.streams = fds[2:5]
        with os.fdopen(os.dup(fds[0]), "rb") as file:
            if os.path.realpath(f"/proc/self/fd/{fds[0]}").startswith("/memfd:"):
                file.seek(0)
            data = file.read()
        argc, envc, words = struct.unpack_from("=QQQ", data)
        texts = data[24 + words * struct.calcsize("@L"):].split(b"\0")[3:]
        self.argv = [os.fsdecode(text) for text in texts[:argc]]
        self.pairs = [tuple(text.split(b"=", 1)) for text in texts[argc:argc + envc]]
        self.environment = {os.fsdecode(k): os.fsdecode(v) for k, v in self.pairs}

    def keep_control(self):
        import socket
        control = socket.socket(fileno=self.fds.pop(1))
        self.close()
        return control

    def close(self):
        while self.fds:
            os.close(self.fds.pop())


def receive(shim):
    import array
    import socket
    import struct
    fds = array.array("i")
    data, control, _, _ = shim.recvmsg(16, socket.CMSG_SPACE(8 * fds.itemsize))
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[:len(payload) - len(payload) % fds.itemsize])
    if len(data) < 4:
        return None
    return Request(struct.unpack("=i", data[:4])[0], list(fds))


def set_name(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)


def set_oom_score(score):
    with open(OOM_SCORE, "w") as file:
        file.write(score)


def prctl(option, value):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def renew_streams():
    """Python's own objects for the descriptors 0 to 2, as the interpreter makes them with -u."""
    import io
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, "__" + name + "__")
        if old is None:
            continue
        try:
            binary = open(fd, "rb" if fd == 0 else "wb", -1 if fd == 0 else 0, closefd=False)
        except OSError:
            continue
        raw = binary.raw if fd == 0 else binary
        raw.name = f"<{name}>"
        text = io.TextIOWrapper(binary, encoding=old.encoding, errors=old.errors,
                                newline=None if fd == 0 else "\n",
                                line_buffering=fd == 0 and raw.isatty(), write_through=True)
        text.mode = "r" if fd == 0 else "w"
        setattr(sys, "__" + name + "__", text)
        setattr(sys, name, text)


def renew_identity():
    """What would be the same in all workers, or the zygote's."""
    threading = sys.modules.get("threading")
    if hasattr(getattr(threading, "Thread", None), "_set_native_id"):
        threading.main_thread()._set_native_id()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def set_threads(asked):
    torch = sys.modules.get("torch")
    if torch is None:
        return
    first = (asked or "").split(",")[0]
    torch.set_num_threads(int(first) if first.isdigit() and int(first) > 0 else physical_cores())


def physical_cores():
    """What torch takes without OMP_NUM_THREADS: the cores of this process, without hyperthreads."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology/"
        try:
            cores.add((read(topology + "physical_package_id"), read(topology + "core_id")))
        except OSError:
            cores.add(cpu)
    return max(1, len(cores))


def show_in_proc(arguments, environment):
    """Lets /proc/PID/environ, and cmdline if it differs, show what the worker has been given. The
    kernel refuses it without CONFIG_CHECKPOINT_RESTORE: then they show the zygote's."""
    import ctypes
    import struct
    libc = ctypes.CDLL(None, use_errno=True)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    fields = read("/proc/self/stat").rsplit(")", 1)[1].split()
    number = {n: int(fields[n - 3]) for n in (26, 27, 28, 45, 46, 47, 48, 49)}

    def kept(texts):
        data = b"".join(text + b"\0" for text in texts)
        address = libc.malloc(ctypes.c_size_t(len(data) or 1))
        ctypes.memmove(address, data, len(data))
        return address, address + len(data)

    shown = kept(arguments) if arguments is not None else (number[48], number[49])
    values = (number[26], number[27], number[45], number[46], number[47],
              libc.sbrk(ctypes.c_long(0)), number[28], *shown, *kept(environment), 0)
    memory = struct.pack("=12QII", *values, 0, 0xffffffff)
    libc.prctl(35, ctypes.c_ulong(14), memory, ctypes.c_ulong(len(memory)), 0)  # PR_SET_MM_MAP


def second_run(baseline):
    import json
    setup = json.loads(os.environ["MUSTER_ZYGOTE"])
    if "probe" in setup:
        os._exit(HOOKED)
    setup["baseline"] = baseline
    try:
        zygote = Zygote(setup)
        try:
            zygote.preload()
            zygote.offer_to_oom_killer()
        except Refusal as error:
            send(zygote.shim, b"N", str(error))
            os._exit(1)
        zygote.serve()
    except BaseException as error:  # The process must not go on to run the script.
        try:
            print(f"muster: the zygote failed: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(1)


def import_own_sitecustomize():
    """Imports the sitecustomize that a cold start would have."""
    own = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own  # The import of this module goes on.


if __name__ == "__main__":
    first_run()
else:
    second_run([name.split(".")[0] for name in sys.modules])
    if getattr(sys.modules.get("sitecustomize"), "__file__", "").startswith("/proc/self/fd/"):
        raise ImportError("a cold start has none", name="sitecustomize")
