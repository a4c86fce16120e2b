"""Finds names that two files of one target declare in anonymous namespaces.

With MUSTER_UNITY all files of a target are compiled as one (docs/decisions/0012-unity-builds.md),
and such names collide. This check reads lines, not C++: it knows declarations that begin in the
first column.
"""
import pathlib
import re

TARGET = re.compile(r"\b(?:add_library|add_executable|muster_add_tests|muster_add_example|muster_add_bench_program)"
                    r"\(\s*(\w+)([^()]*(?:\$<[^()]*>[^()]*)*)\)")
SOURCE = re.compile(r"[\w./${}]+\.cc\b")
APART = re.compile(r"set_source_files_properties\(([^()]*?)\s+PROPERTIES\s+SKIP_UNITY_BUILD_INCLUSION ON\)")
TYPE = re.compile(r"(?:struct|class|enum class|enum)\s+(\w+)[^;]*\{")
CONSTANT = re.compile(r"(?:constexpr|const|inline)\b.*?[\s*&](\w+)(?:\[\w*\])?\s*(?:=|\{)")
# Two equal aliases are no error, unless they stand for different things.
ALIAS = re.compile(r"(?:using|namespace) (\w+) = ([^;]*)")
# Functions with the same name may differ in their parameters. Two functions collide if their whole
# first lines are equal.
FUNCTION = re.compile(r"(?!using|namespace|template|return)[\w:].*[\s*&]\w+\(.*(?:\{|,|\()$")


def targets_of(cmake):
    """{target: its source files} of one CMake file."""
    text = re.sub(r"#.*", "", cmake.read_text())
    apart = {name for names in APART.findall(text) for name in names.split()}
    # A file of worker_sdk/cmake is included from the folder above, and its paths start there.
    folder = cmake.parent.parent if cmake.parent.name == "cmake" else cmake.parent
    return {name: [folder / source for source in SOURCE.findall(words)
                   if source not in apart and "$" not in source]
            for name, words in TARGET.findall(text)}


def declared(path):
    """The names in a file's anonymous namespaces; a function's name includes its parameters. Each
    name has its line and, if it is an alias, what it stands for."""
    names, inside = {}, False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == "namespace {":
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and line[:1] not in ("", " ", "}", "#", "/", ")"):
            if match := ALIAS.match(line):
                names.setdefault(match[1], (number, match[2]))
            elif match := TYPE.match(line) or CONSTANT.match(line):
                names.setdefault(match[1], (number, None))
            elif FUNCTION.match(line):
                names.setdefault(re.sub(r"\b(\w+)(?=[,)])", "", line), (number, None))
    return names


def check(root):
    """The collisions, as lines for people."""
    found = []
    lists = ("*/CMakeLists.txt", "tests/*/**/CMakeLists.txt", "*/*/*.cmake", "*/*.cmake")
    for cmake in sorted(path for pattern in lists for path in root.glob(pattern)):
        for target, sources in targets_of(cmake).items():
            first = {}
            for path in sources:
                if not path.is_file():
                    continue
                for name, (number, meaning) in declared(path).items():
                    if name in first and (meaning is None or meaning != first[name][1]):
                        found.append(f"{path.relative_to(root)}:{number}: `{name.strip()}` is in "
                                     f"{first[name][0].name} as well, and {target} compiles both as one")
                    first.setdefault(name, (path, meaning))
    return found


if __name__ == "__main__":
    print("\n".join(check(pathlib.Path(__file__).resolve().parents[2])))
