"""Commands in documents, and what they say comes out: run, and compared but for numbers, times and paths.

A block is indented by four spaces more than the text around it. In a README a block of commands is followed by
a block of what each of them prints. In a document a command begins with "$ ", and what it prints is below it.
"""
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess

from nodes import free_port
from support import MUSTER, SOURCE, wait_for

VENV = SOURCE / ".venv"
BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build/release"))
SKIPPED = 77
PORT = "29400"  # The documents' port: each command gets a free one in its place.
COMMAND = re.compile(r"(\w+=\S+ )*(muster|muster-launch|musterd|python|build/release/\S+) ")
SETTING = re.compile(r"(export )?\w+=\S+$")
SET_UP = re.compile(r"(\. \.venv/bin/activate|export PATH=.*|pip .*)$")  # Done for all of them, by Clone.
LOSS_MAY_DIFFER = 0.05  # From one kind of processor to another; late in a training it has grown.


@dataclasses.dataclass
class Block:
    commands: list[str]
    printed: list[str]
    before: str = ""  # Settings of the shell, such as NODE_RANK=0.

    def words(self):
        return [f"{self.before}{command}" for command in self.commands]


def indented(text):
    """The blocks of a document: lists of lines without what they are indented by."""
    blocks, by = [], 0
    for line in text.splitlines():
        spaces = len(line) - len(line.lstrip(" ")) if line.strip() else 0
        if by and spaces >= by:
            blocks[-1].append(line[by:])
        elif spaces >= 4:
            blocks.append([line[spaces:]])
            by = spaces
        else:
            by = 0
    return blocks


def joined(lines):
    """Commands that go on in the next line, as one."""
    return [re.sub(r"\s+", " ", line) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]


def readme_blocks(text):
    found = []
    for lines in indented(text):
        if any(kind.match(lines[0]) for kind in (COMMAND, SETTING, SET_UP)):
            words = [word for word in joined(lines) if not SET_UP.match(word)]
            settings = [word for word in words if SETTING.match(word)]
            found.append(Block([word for word in words if word not in settings], [],
                               "".join(f"{setting}; " for setting in settings)))
        elif found and not found[-1].printed:
            found[-1].printed = lines
    return [block for block in found if block.commands]


def sections(text):
    """{heading: text} of the parts that begin with ##."""
    parts = [part.partition("\n") for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]
    return {heading: rest for heading, _, rest in parts}


def dollar_blocks(text):
    found = []
    for lines in indented(text):
        if not lines[0].startswith("$ "):
            continue
        for line in lines:
            if line.startswith("$ "):
                found.append(Block([line[2:]], []))
            else:
                found[-1].printed.append(line)
    return found


def pattern(line):
    """What a line of the document stands for."""
    text = re.escape(re.sub(r"^( *host +: ).*", r"\1…", line.rstrip())).replace("…", ".*")
    # The name server says so, or there is none.
    text = text.replace(re.escape("(authoritative)"), r"\((?:non-)?authoritative\)(?:.*)")
    # Whose line it is stays.
    words = re.split(r"((?:rank|epoch|step|GPU|line)\\ \d\b)", text)
    words[::2] = (re.sub(r"\d+(?:\\\.\d+)*", r"\\d+(?:\\.\\d+)*", word) for word in words[::2])
    return re.compile("".join(words) + r"\s*")


def lines_of(text):
    """With a line for each rank's: Python writes a line's end by itself (-u), and the other rank's line may come before
    it."""
    return re.sub(r"(?<=\S)(?=rank \d+: )", "\n", text).splitlines()


def plain(line):
    """Without what muster and torch put in front."""
    return re.sub(r"^(\[rank\d+\]: |\[?[WEI]\d{4} [\d:.]+ +\d+ muster\] )", "", line.rstrip())


def is_like(line, expected):
    if not pattern(expected).fullmatch(line):
        return False
    if "loss" not in expected or "…" in expected:
        return True
    numbers = [[float(n) for n in re.findall(r"\d+\.\d{3,}", text)] for text in (line, expected)]
    return all(abs(a - b) <= LOSS_MAY_DIFFER for a, b in zip(*numbers, strict=True))


def missing(expected, streams, any_order=False):
    """The first line of the document that the program did not print; None if all are there. Each stream (its
    lines) keeps the document's order; between two of them nothing says which line was first."""
    rest = [list(lines) for lines in streams]
    for line in lines_of("\n".join(expected)):
        if line.strip() == "…":
            continue
        places = ((lines, i) for lines in rest for i, real in enumerate(lines) if is_like(real, line))
        lines, at = next(places, (None, None))
        if lines is None:
            return line
        del lines[at if any_order else 0:at + 1]
    return None


class Clone:
    """What a person has who did what the README asks for: the tree, .venv and build/release, in a folder."""

    def __init__(self, test, name):
        self.test = test
        self.folder = test.dir / f"clone of {name}"
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "examples").symlink_to(SOURCE / "examples")
        (self.folder / ".venv").symlink_to(VENV)
        (self.folder / "build/release/examples").symlink_to(BUILD / "examples")
        (self.folder / "build/release/bin").symlink_to(pathlib.Path(MUSTER).resolve().parent)
        self.port = str(free_port())

    def start(self, command, log, around=(), **settings):
        """A shell with the command, in a session of its own. What it prints is in the files `log` and `log`.err:
        into one file muster would not keep the order of the ranks."""
        command = command.replace(PORT, self.port)
        path = f"{VENV}/bin:{self.folder}/build/release/bin:{os.environ['PATH']}"
        inherited = self.test.environment(PATH=path, VIRTUAL_ENV=str(VENV), **settings)
        inherited.pop("OMP_NUM_THREADS", None)
        with open(self.test.dir / log, "wb") as out, open(self.test.dir / f"{log}.err", "wb") as err:
            process = subprocess.Popen(
                [*around, "bash", "-c", 'cd "$0" && eval "$1"', str(self.folder), command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=inherited,
                start_new_session=True)
        self.test.addCleanup(self.stop, process)
        return process

    @staticmethod
    def stop(process):
        """Its whole session, if it is still there."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()

    def in_background(self, command, log):
        """Something that listens at the port."""
        process = self.start(command, log)

        def listens():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", int(self.port))) == 0
        wait_for(listens, command)
        return process

    def until(self, command, expected, log, bound_s, **start):
        """Runs it until all is printed that is expected, and ends it; fails if that never is."""
        process = self.start(command, log, **start)

        def done():
            return process.poll() is not None or missing(expected, self.streams(log)) is None
        try:
            wait_for(done, f"what {command} prints", bound_s)
        finally:
            left = missing(expected, self.streams(log))
            self.test.assertIsNone(left, f"{command}\n{self.text(log)}")
        self.stop(process)

    def streams(self, log):
        """The lines of stdout, and those of stderr."""
        return [[plain(line) for line in lines_of(self.test.read(name))] for name in (log, f"{log}.err")]

    def text(self, log):
        return self.test.read(log) + self.test.read(f"{log}.err")
