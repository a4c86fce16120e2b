"""Reads facts about torchrun from the Python part of a release of PyTorch.

The files are parsed and not imported, so any release can be read with any Python, without its
libraries. A fact is a name, a value or the place of one in the source. Texts, such as the help of
an option, are kept as a digest only: a digest shows that a text has changed.
"""
import ast
import base64
import contextlib
import dataclasses
import datetime
import hashlib
import pickle
import sys
import types

LAUNCHER = ("distributed/run.py", "distributed/launch.py", "distributed/launcher", "distributed/elastic")
# What a worker reads before it has a process group. The rest of torch.distributed is between the
# worker's script and PyTorch.
WORKER = ("distributed/rendezvous.py", "distributed/distributed_c10d.py", "distributed/constants.py")
STATE_MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
# The names under which torch's functions hold the settings of --rdzv-conf.
SETTINGS = {"params", "rdzv_params", "rdzv_parameters", "rdzv_configs", "config"}


def digest(text):
    """A short digest of a text, apart from its line breaks."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12]


def value(node):
    """A default value: itself if it is a constant, else its expression."""
    try:
        found = ast.literal_eval(node)
        return found if isinstance(found, (str, int, float, bool, type(None))) else ast.unparse(node)
    except ValueError:
        return ast.unparse(node)


def name_of(node):
    """The last part of a.b.c."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


class Source:
    """One parsed file."""

    def __init__(self, root, path):
        self.name = str(path.relative_to(root))
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants, self.loops = {}, {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self.name_constant(node.targets[0], node.value)
            elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
                over = node.iter
                elements = over.keys if isinstance(over, ast.Dict) else getattr(over, "elts", [])
                self.loops.setdefault(node.target.id, []).extend(elements)

    def name_constant(self, target, assigned):
        if isinstance(target, ast.Name) and isinstance(assigned, (ast.Constant, ast.Name)):
            self.constants.setdefault(target.id, assigned)

    def with_function(self):
        """Every node, with the name of the function or class around it."""
        def walk(node, inside):
            for child in ast.iter_child_nodes(node):
                yield child, inside
                names = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
                yield from walk(child, child.name if isinstance(child, names) else inside)
        yield from walk(self.tree, "module")


class Release:
    """The files of one release below `root`, the folder that contains torch/."""

    def __init__(self, root):
        self.root = root / "torch"
        if not (self.root / "distributed/run.py").exists():
            raise FileNotFoundError(f"{self.root} has no distributed/run.py")
        self.sources = {}
        for part in (*LAUNCHER, *WORKER):
            place = self.root / part
            for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []:
                source = Source(self.root, path)
                self.sources[source.name] = source
        self.constants = {}
        for source in self.sources.values():
            for name, node in source.constants.items():
                if name.isupper():
                    self.constants.setdefault(name, node)

    def of(self, parts):
        return [s for s in self.sources.values() if s.name.startswith(tuple(parts))]

    def source(self, name):
        return self.sources[name]

    def text(self, source, node):
        """The text that an expression stands for, if it is a constant, else None."""
        for _ in range(5):
            if isinstance(node, ast.Constant):
                return node.value if isinstance(node.value, str) else None
            name = name_of(node)
            if name is None:
                return None
            node = source.constants.get(name) or self.constants.get(name)
            if node is None:
                return None
        return None

    def texts(self, source, node):
        """All texts that an expression stands for: a constant, or what a loop goes over."""
        one = self.text(source, node)
        if one is not None:
            return [one]
        over = source.loops.get(name_of(node), [])
        return [text for each in over if (text := self.text(source, each)) is not None]


# --- The command line --------------------------------------------------------------------------

def options(source, keep=lambda names: True):
    """The options that a file's add_argument() calls declare, in their order."""
    found = []
    for node, _ in source.with_function():
        if not (isinstance(node, ast.Call) and name_of(node.func) == "add_argument"):
            continue
        names = [n.value for n in node.args if isinstance(n, ast.Constant)]
        words = {k.arg: k.value for k in node.keywords}
        action = words.get("action")
        action = action.value if isinstance(action, ast.Constant) else name_of(action)
        long = next((n for n in names if n.startswith("--")), names[0])
        option = {"names": names, "action": action, "help": digest(help_text(words.get("help")))}
        if "default" in words:
            option["default"] = value(words["default"])
        for word in ("type", "choices", "nargs"):
            if word in words:
                option[word] = value(words[word])
        if action in ("env", "check_env"):
            option["variable"] = "PET_" + long.lstrip("-").replace("-", "_").upper()
        if keep(names):
            found.append(option)
    return found


def help_text(node):
    if node is None:
        return ""
    try:
        return str(ast.literal_eval(node))
    except ValueError:
        return ast.unparse(node)


def prefix_macros(release):
    """The macros of the prefix template: the words given to Template.safe_substitute()."""
    found = set()
    for source in release.of(["distributed/elastic/agent"]):
        for node, _ in source.with_function():
            if isinstance(node, ast.Call) and name_of(node.func) == "safe_substitute":
                found |= {k.arg for k in node.keywords if k.arg}
    return sorted(found)


# --- Variables ---------------------------------------------------------------------------------

def is_environment(node):
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def variable_nodes(node):
    """The expressions that name the variables which this node reads."""
    if isinstance(node, ast.Call) and node.args:
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("get", "setdefault") and is_environment(called.value):
            return [node.args[0]]
        if name_of(called) in ("getenv", "_get_env_or_raise", "get_env_variable_or_raise"):
            return [node.args[0]]
    if isinstance(node, ast.Subscript) and is_environment(node.value) and isinstance(node.ctx, ast.Load):
        return [node.slice]
    if isinstance(node, ast.Compare) and any(map(is_environment, node.comparators)):
        return [node.left]
    return []


def variables_read(release, parts):
    """Name -> the functions that read it. A name that is not a constant is written as "?name"."""
    found = {}
    for source in release.of(parts):
        for node, inside in source.with_function():
            for named in variable_nodes(node):
                place = f"{source.name.removeprefix('distributed/')}:{inside}"
                for name in release.texts(source, named) or ["?" + ast.unparse(named)]:
                    # The helpers that read what their caller names: the caller is found by itself.
                    if name not in ("?env_var", "?env_name"):
                        found.setdefault(name, set()).add(place)
    return {name: sorted(places) for name, places in sorted(found.items())}


def worker_variables(release):
    """The variables that the launcher sets for its workers."""
    found = set()
    for source in release.of(LAUNCHER):
        for node, _ in source.with_function():
            named = []
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                named = [t.slice for t in targets if isinstance(t, ast.Subscript)]
                if any(name_of(t) == "worker_env" for t in targets) and isinstance(node.value, ast.Dict):
                    named += node.value.keys
            for one in named:
                name = release.text(source, one)
                if name and name.isupper() and len(name) > 3:
                    found.add(name)
    return sorted(found)


# --- Rendezvous --------------------------------------------------------------------------------

def rdzv_keys(release):
    """Key of --rdzv-conf -> backend files that read it, with the default value that each has."""
    found = {}
    for source in release.of(["distributed/elastic/rendezvous"]):
        for node, _ in source.with_function():
            key, default = settings_key(node)
            if key:
                file = source.name.rsplit("/", 1)[1]
                found.setdefault(key, {})[file] = default
    return dict(sorted(found.items()))


def settings_key(node):
    def constant(one):
        return one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else None

    if isinstance(node, ast.Call) and node.args:
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("get", "get_as_int", "get_as_bool"):
            if name_of(called.value) in SETTINGS and constant(node.args[0]):
                return constant(node.args[0]), value(node.args[1]) if len(node.args) > 1 else None
        if name_of(called) == "_get_timeout" and len(node.args) == 2 and constant(node.args[1]):
            return constant(node.args[1]) + "_timeout", None
    if isinstance(node, ast.Subscript) and name_of(node.value) in SETTINGS:
        return constant(node.slice), None
    return None, None


def rdzv_timeouts(release):
    """The default times of the c10d rendezvous."""
    source = release.source("distributed/elastic/rendezvous/dynamic_rendezvous.py")
    for node, _ in source.with_function():
        if isinstance(node, ast.Assign) and name_of(node.targets[0]) == "_DEFAULT_TIMEOUTS":
            return {k.value: ast.unparse(v) for k, v in zip(node.value.keys, node.value.values)}
    return {}


def defined_class(source, name):
    for node, _ in source.with_function():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{source.name} has no class {name}")


def fields(node):
    """A class's annotated fields, with default values where there are some."""
    return {one.target.id: value(one.value) if one.value else None
            for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}


@contextlib.contextmanager
def state_classes(release):
    """The release's own classes of the rendezvous state, made from its source alone. Meanwhile a
    pickle finds them under torch's own names."""
    source = release.source("distributed/elastic/rendezvous/dynamic_rendezvous.py")
    parts = STATE_MODULE.split(".")
    names = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    module = types.ModuleType(STATE_MODULE)
    module.dataclass, module.field = dataclasses.dataclass, dataclasses.field
    body = [defined_class(source, name) for name in ("_NodeDesc", "_RendezvousState")]
    # Annotations of functions and fields stay texts: they name types that are not here.
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    tree = ast.fix_missing_locations(ast.Module([future, *body], []))
    before = {name: sys.modules.get(name) for name in names}
    try:
        sys.modules.update({name: types.ModuleType(name) for name in names})
        sys.modules[STATE_MODULE] = module
        exec(compile(tree, source.name, "exec"), module.__dict__)
        yield module
    finally:
        for name, one in before.items():
            sys.modules.pop(name)
            if one:
                sys.modules[name] = one


def sample_state(module):
    """A state in which each field has another value than a new state has."""
    at = datetime.datetime(2026, 11, 28, 12, 0, 0, 250000, tzinfo=datetime.timezone.utc)
    one, two, three, four = (module._NodeDesc(f"node{i}", 4000 + i, i % 2) for i in range(4))
    state = module._RendezvousState()
    state.round, state.complete, state.closed = 3, True, True
    state.deadline = at
    state.participants = {one: 0, two: 1}
    state.wait_list, state.redundancy_list = {three}, {four}
    state.last_heartbeats = {n: at + datetime.timedelta(seconds=i) for i, n in enumerate((one, two, three, four))}
    return state


def rendezvous_state(release):
    source = release.source("distributed/elastic/rendezvous/dynamic_rendezvous.py")
    with state_classes(release) as module:
        state = sample_state(module)
        text = base64.b64encode(pickle.dumps(state, protocol=4)).decode()
    attributes = list(vars(state))
    protocols = sorted({ast.unparse(node) for node, _ in source.with_function()
                        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pickle.dumps"})
    return {"fields": fields(defined_class(source, "_RendezvousState")), "attributes": attributes,
            "node": fields(defined_class(source, "_NodeDesc")), "module": STATE_MODULE,
            "pickled_by": protocols, "pickle": text}


# --- Files, and what the launcher is configured with ------------------------------------------

def error_file(release):
    """The keys of error.json: those written by @record and those read by the launcher."""
    written, read = set(), set()
    for source in release.of(["distributed/elastic/multiprocessing/errors"]):
        for node, _ in source.with_function():
            if isinstance(node, ast.Dict):
                written |= {k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                target = written if isinstance(node.ctx, ast.Store) else read
                if isinstance(node.slice.value, str):
                    target.add(node.slice.value)
            elif isinstance(node, ast.Call) and name_of(node.func) == "get" and node.args and \
                    isinstance(node.args[0], ast.Constant):
                if not is_environment(getattr(node.func, "value", None)):
                    read.add(node.args[0].value)
    return {"written": sorted(written), "read": sorted(read)}


def launch_config(release):
    return fields(defined_class(release.source("distributed/launcher/api.py"), "LaunchConfig"))


def entry_points(release):
    """The groups of entry points that the launcher looks up."""
    found = set()
    for source in release.of(LAUNCHER):
        for node, _ in source.with_function():
            if isinstance(node, ast.Call) and name_of(node.func) in ("entry_points", "select"):
                found |= {k.value.value for k in node.keywords
                          if k.arg == "group" and isinstance(k.value, ast.Constant)}
    return sorted(found)


def nccl_choice(release):
    """Which function makes the backend "nccl": the variable and the value that choose it, and
    whether the newer one takes a GPU by itself."""
    source = release.source("distributed/distributed_c10d.py")
    for node, inside in source.with_function():
        if not isinstance(node, ast.IfExp) or not isinstance(node.test, ast.Compare):
            continue
        read = variable_nodes(node.test.left)
        if read and release.text(source, read[0]) == "TORCH_DIST_USE_NCCL2":
            makers = [name_of(node.body), name_of(node.orelse)]
            nccl2 = next(name for name in makers if "nccl2" in name)
            return {"variable": release.text(source, read[0]), "value": value(node.test.comparators[0]),
                    "then": makers[0], "otherwise": makers[1],
                    "binds_a_device": "_nccl2_device" in names_called(source, nccl2)}
    return {"variable": None, "otherwise": "_create_nccl_process_group", "binds_a_device": False}


def names_called(source, function):
    return {name_of(node.func) for node, inside in source.with_function()
            if inside == function and isinstance(node, ast.Call)}


def read(root):
    release = Release(root)
    launch = options(release.source("distributed/launch.py"))
    return {
        "options": options(release.source("distributed/run.py")),
        "launch_options": launch,
        "prefix_macros": prefix_macros(release),
        "variables_of_launcher": variables_read(release, LAUNCHER),
        "variables_of_worker": variables_read(release, WORKER),
        "worker_variables": worker_variables(release),
        "rdzv_keys": rdzv_keys(release),
        "rdzv_timeouts": rdzv_timeouts(release),
        "state": rendezvous_state(release),
        "error_file": error_file(release),
        "launch_config": launch_config(release),
        "entry_points": entry_points(release),
        "nccl": nccl_choice(release),
    }
