"""Reads from the C++ headers of a release of PyTorch the declarations that the worker SDK uses, and
the queries of the store.

The reader knows as much of C++ as c10d's headers need: it finds the members of a class, and gives
each function the types of its parameters. Names of parameters and default values are left out: the
SDK does not depend on the names, and a parameter with a default value is marked with "=".
"""
import hashlib
import re

C10D = "include/torch/csrc/distributed/c10d"
# Class -> its header, and the members that count: USED are those whose names the SDK's sources call or
# override. The constructors always count. A header that moves is found by its name.
USED = None
CLASSES = {
    "Reducer": ("reducer.hpp", USED),
    "ProcessGroup": ("ProcessGroup.hpp", USED),
    "Backend": ("Backend.hpp", USED),
    "Work": ("Work.hpp", USED),
    "Store": ("Store.hpp", USED),
    "Logger": ("logger.hpp", USED),
    "TCPStore": ("TCPStore.hpp", ()),
    "TCPStoreOptions": ("TCPStore.hpp", USED),
    "PrefixStore": ("PrefixStore.hpp", ()),
    "HashStore": ("HashStore.hpp", ()),
    "ProcessGroupGloo": ("ProcessGroupGloo.hpp", ("allreduce", "create_default")),
    "ProcessGroupWrapper": ("ProcessGroupWrapper.hpp", ()),
    "ProcessGroupNCCL": ("ProcessGroupNCCL.hpp", ("create", "split", "performNocolorSplit")),
    "nccl2::ProcessGroupNCCL": ("nccl2/ProcessGroupNCCL.hpp", ("split", "performNocolorSplit", "setBoundDeviceId")),
    **{name + "Options": ("Types.hpp", USED) for name in (
        "Allgather", "Allreduce", "AllToAll", "Barrier", "Broadcast", "Gather", "Reduce", "ReduceScatter", "Scatter")},
}
# Free functions -> their header.
FUNCTIONS = {
    "register_process_group": "GroupRegistry.hpp",
    "unregister_process_group": "GroupRegistry.hpp",
    "unregister_all_process_groups": "GroupRegistry.hpp",
    "setDebugLevelFromEnvironment": "debug.h",
    "debug_level": "debug.h",
    "compute_bucket_assignment_by_size": "reducer.hpp",
    "verify_params_across_processes": "reducer.hpp",
}
WORDS_BEFORE_A_TYPE = {"virtual", "explicit", "inline", "static", "constexpr", "friend", "TORCH_API", "C10_EXPORT"}
BUILT_IN = {"bool", "char", "double", "float", "int", "int64_t", "long", "short", "signed", "size_t", "unsigned", "void"}


def plain(text):
    """The text without comments, preprocessor lines and strings."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"^\s*#[^\n]*", "", text, flags=re.MULTILINE)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def closing(text, at):
    """The place of the bracket that closes the one at `at`."""
    pairs = {"{": "}", "(": ")", "<": ">", "[": "]"}
    begin, end, depth = text[at], pairs[text[at]], 0
    for place in range(at, len(text)):
        depth += (text[place] == begin) - (text[place] == end)
        if depth == 0:
            return place
    raise ValueError("a bracket is not closed")


def split_top(text, separator=","):
    """Splits at separators outside of brackets. Inside of <>, > of -> does not count."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        if letter in "(<[{":
            depth += 1
        elif letter in ")]}" or (letter == ">" and text[place - 1:place] != "-"):
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [one.strip() for one in [*parts, text[begin:]] if one.strip()]


def type_of(parameter):
    """The type of one parameter, without its name."""
    declared, *default = split_top(parameter, "=")
    declared = " ".join(declared.split())
    words = re.findall(r"[\w:]+|<.*>|[&*]+|\S", declared)
    last = words[-1]
    if len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", last) and last not in BUILT_IN and words[-2] not in ("const", "::"):
        declared = declared[:-len(last)].rstrip()
    declared = re.sub(r"\s*([<>,&*])\s*", r"\1", declared)
    return declared + ("=" if default else "")


def members(body):
    """(name, text) of each function that is declared in a class's body or in a header."""
    flat, at = [], 0
    while at < len(body):  # Leaves out the bodies of functions and of nested classes.
        if body[at] == "(":
            end = closing(body, at)
        elif body[at] == "{":
            at = closing(body, at) + 1
            flat.append(";")
            continue
        else:
            end = at
        flat.append(body[at:end + 1])
        at = end + 1
    for declaration in "".join(flat).split(";"):
        declaration = re.sub(r"^\s*(public|private|protected)\s*:", "", " ".join(declaration.split()))
        # The first bracket that follows a name, outside of template arguments.
        depth = 0
        for place, letter in enumerate(declaration):
            depth += (letter == "<") - (letter == ">" and declaration[place - 1:place] != "-")
            if letter != "(" or depth:
                continue
            name = re.search(r"(~?[A-Za-z_]\w*)\s*$", declaration[:place])
            is_field = "=" in declaration[:place] and "operator" not in declaration[:place]
            if name and not is_field and name[1] != "static_assert" and "= delete" not in declaration:
                yield name[1], declaration, place
            break


def signature(name, declaration, place):
    inside = declaration[place + 1:closing(declaration, place)]
    before = declaration[:place][:declaration[:place].rstrip().rfind(name)]
    result = " ".join(w for w in before.split() if w not in WORDS_BEFORE_A_TYPE)
    result = re.sub(r"^(public|private|protected)\s*:\s*", "", result)
    result = re.sub(r"\s*([<>,&*])\s*", r"\1", result)
    after = declaration[closing(declaration, place) + 1:].split()
    constant = " const" if after[:1] == ["const"] else ""
    parameters = ", ".join(type_of(one) for one in split_top(inside))
    return f"{result + ' ' if result else ''}{name}({parameters}){constant}"


def class_body(text, name):
    found = re.search(r"\b(?:class|struct)\s+(?:[A-Z_]+\s+)?(?:\w+\()?" + re.escape(name) + r"\)?\s*(?:final\s*)?(?::[^;{]*)?\{", text)
    if not found:
        return None
    begin = found.end() - 1
    return text[begin + 1:closing(text, begin)]


def enumerators(text, name):
    found = re.search(r"\benum\s+(?:class\s+)?" + name + r"\b[^;{]*\{([^}]*)\}", text)
    return [re.match(r"\w+", one)[0] for one in split_top(found[1])] if found else []


class Headers:
    def __init__(self, root):
        self.folder = root / "torch" / C10D
        if not self.folder.is_dir():
            raise FileNotFoundError(f"the release has no {C10D}")

    def text(self, name):
        path = self.folder / name
        if not path.exists():
            if "/" in name:
                return None
            # A copy in a deeper folder is the moved header; the shortest path is c10d's own.
            path = min(self.folder.rglob(name), key=lambda p: (len(p.parts), p), default=None)
        return plain(path.read_text(encoding="utf-8")) if path else None


def data_members(body):
    """The names of the fields in a class's body."""
    outside = re.sub(r"\([^()]*\)", "", body)
    return re.findall(r"\b(\w+)\s*(?:\{[^{}]*\}|=[^;(){}]*)?;", outside)


def class_facts(body, name, counts):
    """member -> signatures of those members of the class `name` for which counts() is true."""
    found = {}
    for member, declaration, place in members(body):
        if member == name or counts(member):
            found.setdefault(member, []).append(signature(member, declaration, place))
    if name.endswith("Options"):
        for field in data_members(body):
            if counts(field) and field not in found:
                found[field] = ["field"]
    return found


def free_functions(text, name):
    """The signatures of the functions `name` that a header declares outside of classes."""
    found = []
    for called in re.finditer(r"(?<![\w.>])" + name + r"\s*\(", text):
        begin = max(text.rfind(end, 0, called.start()) for end in ";{}") + 1
        declaration = text[begin:closing(text, called.end() - 1) + 1]
        found.append(signature(name, declaration, called.end() - 1 - begin))
    return found


def sdk_signatures(headers, used):
    """Class::member -> its signatures, for what the SDK uses."""
    found = {}
    for full_name, (header, wanted) in CLASSES.items():
        text = headers.text(header)
        name = full_name.rsplit("::", 1)[-1]
        body = class_body(text, name) if text else None
        if body is None:
            continue
        counts = (used if wanted is USED else set(wanted)).__contains__
        for member, signatures in class_facts(body, name, counts).items():
            found[f"c10d::{full_name}::{member}"] = signatures
        options = class_body(body, "Options")
        for member, signatures in (class_facts(options, "Options", counts) if options else {}).items():
            found[f"c10d::{full_name}::Options::{member}"] = signatures
    for name, header in FUNCTIONS.items():
        found[f"c10d::{name}"] = free_functions(headers.text(header) or "", name)
    return {name: sorted(set(signatures)) for name, signatures in sorted(found.items()) if signatures}


def digests(signatures):
    """What is kept of the signatures: enough to see that one has changed."""
    return {name: hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12] for name, texts in signatures.items()}


def names_in(folder):
    """The names of members and functions that the SDK's sources call, set or override."""
    found = set()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cc", ".h"):
            text = plain(path.read_text(encoding="utf-8"))
            found |= set(re.findall(r"(?:->|\.|::)(\w+)\b", text))
            found |= set(re.findall(r"\b(\w+)\([^()]*\)(?:\s*const)?\s*override", text))
    return found


def store_queries(headers):
    """The names of the store's queries, in the order of their numbers."""
    return enumerators(headers.text("TCPStoreBackend.hpp") or "", "QueryType")


def read(root, sdk):
    headers = Headers(root)
    return {
        "store_queries": store_queries(headers),
        "sdk_signatures": digests(sdk_signatures(headers, names_in(sdk))),
    }
