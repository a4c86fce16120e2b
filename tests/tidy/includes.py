"""Finds types and constants of a header that a .cc file uses without an include of that header, directly or not.

A build with MUSTER_UNITY does not find this if an earlier file of the target has the include
(docs/decisions/0012-unity-builds.md), and a build by a preset fails. This check reads lines, not
C++: it knows names that are defined in the first column. Functions are left to clang-tidy.
"""
import pathlib
import re

# Not worker_sdk: LibTorch has types of the same names.
FOLDERS = ("launcher", "musterctl", "pickle", "base", "rendezvous", "agent", "tests")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NO_CODE = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|^#include[^\n]*',
                     re.DOTALL | re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)[^;{}]*\{|^using (\w+) =", re.MULTILINE)
CONSTANT = re.compile(r"^(?:inline )?(?:constexpr|const)\b[^=;({]*[\s*&](k[A-Z]\w+)", re.MULTILINE)
# Names of other namespaces and fields have one of these before them.
USED = re.compile(r"(?<!::)(?<!\.)(?<!->)\b(?:muster::)?([A-Zk]\w+)\b")


def defined(code):
    return {name for names in TYPE.findall(code) for name in names if name} | set(CONSTANT.findall(code))


def declares(code, name):
    """Whether the file has something of its own with this name: a field, an enumerator, a type inside a class."""
    return re.search(rf"\b(?:struct|class|enum|using|typename(?:\.\.\.)?) {name}\b|[\w>&*] {name}\b"
                     rf"|^ *{name}(?:,|$| =)", code, re.MULTILINE)


def check(root):
    """The missing includes, as lines for people."""
    code, included = {}, {}
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")):
        if path.suffix in (".h", ".cc"):
            text = path.read_text()
            code[path] = NO_CODE.sub('""', text)
            included[path] = [root / name for name in INCLUDE.findall(text)]
    headers = {}
    for path in code:
        if path.suffix == ".h" and not path.is_relative_to(root / "tests"):
            for name in defined(code[path]):
                headers.setdefault(name, set()).add(path)

    def behind(path):
        seen, left = {path}, [path]
        while left:
            new = {there for there in included[left.pop()] if there in code} - seen
            seen |= new
            left.extend(new)
        return seen

    found = []
    for path in (path for path in code if path.suffix == ".cc"):
        seen = behind(path)
        for name in sorted(set(USED.findall(code[path])) & headers.keys()):
            if headers[name] & seen or any(declares(code[there], name) for there in seen):
                continue
            where = sorted(str(header.relative_to(root)) for header in headers[name])
            found.append(f"{path.relative_to(root)}: {name} is used without an include of {' or '.join(where)}")
    return found


if __name__ == "__main__":
    print("\n".join(check(pathlib.Path(__file__).resolve().parents[2])))
