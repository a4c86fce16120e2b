"""Compares the facts of two releases of PyTorch, and those of one release with what muster does."""
import collections
import json
import pathlib
import re
import subprocess

# `key` is the name in the table of the documents; `text` says what differs.
Difference = collections.namedtuple("Difference", "area key text")

PAGES = ("docs/compatibility.md", "docs/worker_sdk.md")
HEADING = re.compile(r"^##+ Releases of (?:torchrun|torch)$(.*?)(?=^##+ |\Z)", re.MULTILINE | re.DOTALL)
BACKEND_OF_FILE = {"dynamic_rendezvous.py": "c10d", "c10d_rendezvous_backend.py": "c10d",
                   "static_tcp_rendezvous.py": "static", "etcd_rendezvous.py": "etcd",
                   "etcd_rendezvous_backend.py": "etcd-v2"}
# What a worker of torchrun gets in another way under muster.
SET_ELSEWHERE = {"TORCHELASTIC_TIMER_FILE": "set only with TORCHELASTIC_ENABLE_FILE_TIMER=1 (agent/io)"}
# muster's metrics have a shorter name for these queries.
QUERIES = {"NUM_KEYS": "GETNUMKEYS", "DELETE": "DELETE_KEY"}
NCCL_CLASSES = {"_create_nccl_process_group": "ProcessGroupNCCL", "_create_nccl2_process_group": "ProcessGroupNCCL2"}


def long_name(option):
    return next((name for name in option["names"] if name.startswith("--")), option["names"][0])


# --- Two releases ------------------------------------------------------------------------------

def named(area, before, after, what):
    """The names that only one of two dictionaries has, and those whose values differ."""
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield Difference(area, name, f"new {what}")
        elif name not in after:
            yield Difference(area, name, f"{what} is gone")
        elif before[name] != after[name]:
            yield Difference(area, name, f"{what} changed: {shown(before[name])} -> {shown(after[name])}")


def shown(value):
    return value if isinstance(value, str) else json.dumps(value)


def of_options(area, before, after):
    old, new = ({long_name(o): o for o in options} for options in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            variable = new[name].get("variable")
            yield Difference(area, name, "new option" + (f", {variable}" if variable else ""))
        elif name not in new:
            yield Difference(area, name, "option is gone")
        else:
            for field in sorted(old[name].keys() | new[name].keys()):
                one, other = old[name].get(field), new[name].get(field)
                if one != other:
                    change = "" if field == "help" else f": {shown(one)} -> {shown(other)}"
                    yield Difference(area, name, f"option's {field} changed{change}")


def of_lists(area, before, after, what, key="{}"):
    yield from (Difference(area, key.format(n), f"new {what}") for n in after if n not in before)
    yield from (Difference(area, key.format(n), f"{what} is gone") for n in before if n not in after)


def between(before, after):
    """All differences between the facts of two releases, as a list for the documents."""
    found = [*of_options("options", before["options"], after["options"]),
             *of_options("launch options", before["launch_options"], after["launch_options"]),
             *of_lists("prefix", before["prefix_macros"], after["prefix_macros"], "macro", "${{{}}}")]
    for area in ("variables_of_launcher", "variables_of_worker"):
        found += of_lists(area, before[area], after[area], "variable that is read")
    # Of a variable that the launcher sets, it matters what the worker does with it.
    for name in after["worker_variables"]:
        places = [set(facts["variables_of_worker"].get(name, [])) for facts in (before, after)]
        if places[0] and places[1] - places[0]:
            found.append(Difference("variables_of_worker", name, "also read in " + ", ".join(sorted(places[1] - places[0]))))
    found += of_lists("worker variables", before["worker_variables"], after["worker_variables"], "variable of a worker")
    found += named("rdzv-conf", before["rdzv_keys"], after["rdzv_keys"], "key of --rdzv-conf")
    found += named("rdzv-conf", before["rdzv_timeouts"], after["rdzv_timeouts"], "default time")
    found += named("state", before["state"], after["state"], "part of the rendezvous state")
    for side in ("written", "read"):
        found += of_lists("error file", before["error_file"][side], after["error_file"][side], f"key of error.json, {side}")
    found += named("launch config", before["launch_config"], after["launch_config"], "field of LaunchConfig")
    found += of_lists("entry points", before["entry_points"], after["entry_points"], "group of entry points")
    if before["nccl"] != after["nccl"]:
        found.append(Difference("nccl", "nccl", f"the choice of its class: {shown(after['nccl'])}"))
    if before["store_queries"] != after["store_queries"]:
        found += of_lists("store", before["store_queries"], after["store_queries"], "query of the store")
        found.append(Difference("store", "QueryType", "its numbers: " + ", ".join(after["store_queries"])))
    # New functions of a class that the SDK uses are no difference for it.
    found += [d for d in named("SDK", before["sdk_signatures"], after["sdk_signatures"], "signature")
              if not d.text.startswith("new ")]
    return found


# --- The documents -----------------------------------------------------------------------------

def documented(root):
    """Name -> what muster does, from the tables below the headings "Releases of ...": the last cell of a row is about
    the names in its other cells."""
    found = {}
    for page in PAGES:
        for section in HEADING.findall((root / page).read_text(encoding="utf-8")):
            for row in section.splitlines():
                *releases, muster = [cell.strip() for cell in row.strip("| ").split(" | ")]
                if row.startswith("| ") and len(releases) >= 2 and not muster.startswith("---"):
                    found.update({name: muster for cell in releases for code in re.findall(r"`([^`]+)`", cell)
                                  for name in (code, *re.split(r"[\s=,]+", code))})
    return found


def undocumented(differences, documents):
    return [d for d in differences if d.key not in documents]


def not_admitted(differences, documents):
    """What muster does otherwise, except where the documents say that it does it not yet."""
    return [d for d in differences if not documents.get(d.key, "").startswith("not yet")]


# --- A release and muster ----------------------------------------------------------------------

def literals(root):
    """All string literals in muster's own sources."""
    found = set()
    for folder in ("launcher", "agent", "rendezvous", "worker_sdk"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".py"):
                found |= set(re.findall(r'"([^"\\\n]*)"', path.read_text(encoding="utf-8")))
    return found


def ask(program, text):
    return subprocess.run([str(program)], input=text, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def facts_of_muster(programs, releases):
    """What muster does with what these releases have. `programs`: the folder of muster_facts."""
    keys = collections.defaultdict(set)
    for facts in releases.values():
        for key, files in facts["rdzv_keys"].items():
            keys[key] |= {BACKEND_OF_FILE[file] for file in files if file in BACKEND_OF_FILE}
    asked = {"rdzv_keys": {key: sorted(backends) for key, backends in keys.items()},
             "prefix_macros": sorted({m for facts in releases.values() for m in facts["prefix_macros"]}),
             "releases": sorted(releases)}
    return json.loads(ask(programs / "muster_facts", json.dumps(asked)))


def default_of(option):
    default = option.get("default")
    if default == "[]":  # A list of texts, which the command line separates by commas.
        return ""
    return None if default is None or isinstance(default, bool) else str(default)


def options_of_muster(facts, muster):
    ours = {long_name(o): o for o in muster["options"]}
    for option in [*facts["options"], *facts["launch_options"]]:
        name, is_flag = long_name(option), option["names"][0].startswith("-")
        if not is_flag:
            continue
        if name not in ours:
            yield Difference("options", name, "muster has no such option")
            continue
        mine = ours[name]
        if mine["names"] != option["names"]:
            yield Difference("options", name, f"muster spells it {mine['names']}")
        if mine["variable"] != option.get("variable", ""):
            yield Difference("options", name, f"muster's variable is {mine['variable']!r}")
        if mine["takes_value"] and mine["default"] != default_of(option):
            yield Difference("options", name, f"muster's default is {mine['default']!r}, not {option.get('default')!r}")


def against_muster(release, facts, muster, root, programs):
    """The differences between a release and muster. An empty list: muster does what it does."""
    found = list(options_of_muster(facts, muster))
    for key, files in facts["rdzv_keys"].items():
        for file in files:
            if file in BACKEND_OF_FILE and f"{key} {BACKEND_OF_FILE[file]}" not in muster["rdzv_keys"]:
                found.append(Difference("rdzv-conf", key, f"muster's {BACKEND_OF_FILE[file]} does not know it"))
    found += [Difference("rdzv-conf", key, f"is read in {file}, a backend that compare.py does not know")
              for key, files in facts["rdzv_keys"].items() for file in files if file not in BACKEND_OF_FILE]
    found += [Difference("worker variables", name, "muster does not set it") for name in facts["worker_variables"]
              if name not in muster["worker_variables"] and name not in SET_ELSEWHERE]
    found += [Difference("prefix", f"${{{m}}}", "muster does not replace it") for m in facts["prefix_macros"]
              if m not in muster["prefix_macros"]]
    texts = literals(root)
    pages = "".join((root / page).read_text(encoding="utf-8") for page in PAGES)
    for name in facts["variables_of_launcher"]:
        if name not in texts and f"`{name}`" not in pages:
            found.append(Difference("variables_of_launcher", name, "neither muster's sources nor its documents name it"))
    for group in facts["entry_points"]:
        if not any(group in text for text in texts) and f"`{group}`" not in pages:
            found.append(Difference("entry points", group, "neither muster's sources nor its documents name it"))
    for side in ("written", "read"):
        found += [Difference("error file", key, f"is {side} by torch, and muster's sources do not name it")
                  for key in facts["error_file"][side] if key not in texts]
    queries = [QUERIES.get(name, name) for name in muster["store_queries"]]
    if facts["store_queries"] != queries:
        found.append(Difference("store", "QueryType", f"torch: {facts['store_queries']}, muster: {queries}"))
    return found + of_state(facts, programs) + of_nccl(release, facts, muster)


def of_state(facts, programs):
    """muster must read the release's pickle, and write the same bytes for the same state."""
    text = facts["state"]["pickle"]
    twin = ask(programs / "state_tool", text + "\n").strip()
    if twin.startswith("refused") or twin == "null":
        return [Difference("state", "pickle", f"muster reads: {twin}")]
    again = ask(programs / "state_tool", twin + "\n").strip()
    return [] if again == text else [Difference("state", "pickle", "muster writes other bytes for the same state")]


def class_by_python(choice, given):
    """The class that the release's Python makes if the variable has this value, "" if it is not set."""
    chosen = choice["then"] if choice["variable"] and given == choice["value"] else choice["otherwise"]
    return NCCL_CLASSES.get(chosen, chosen)


def of_nccl(release, facts, muster):
    found, choice = [], facts["nccl"]
    if choice["variable"] not in (None, muster["variable_of_nccl"]):
        found.append(Difference("nccl", choice["variable"], f"muster reads {muster['variable_of_nccl']}"))
    made = muster["nccl"][release]
    for given, ours in made["classes"].items():
        theirs = class_by_python(choice, given)
        if ours != theirs:
            found.append(Difference("nccl", "nccl", f"{choice['variable']}={given!r}: Python makes {theirs}, the SDK {ours}"))
    if made["binds_a_device"] != choice["binds_a_device"]:
        found.append(Difference("nccl", "nccl", f"Python binds a device: {choice['binds_a_device']}"))
    return found


def load(folder):
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(pathlib.Path(folder).glob("*.json"))}
