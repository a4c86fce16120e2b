"""Runs the commands of documents and compares their output with the documents, except for numbers,
times and paths.

A block is indented by four spaces more than the text around it. In a README a block of commands is
followed by a block with the output of each of them. In a document a command begins with "$ ", and
its output is below it.
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
PORT = "29400"  # The port in the documents. Each command gets a free port instead.
COMMAND = re.compile(r"(\w+=\S+ )*(muster|muster-launch|musterd|python|build/release/\S+) ")
SETTING = re.compile(r"(export )?\w+=\S+$")
# Clone does this for all commands.
SET_UP = re.compile(r"(\. \.venv/bin/activate|export PATH=.*|pip .*)$")
# Losses differ between kinds of processors, and the difference grows during a training.
LOSS_MAY_DIFFER = 0.05


@dataclasses.dataclass
class Block:
    commands: list[str]
    printed: list[str]
    before: str = ""  # Settings of the shell, such as NODE_RANK=0.

    def words(self):
        return [f"{self.before}{command}" for command in self.commands]


def indented(text):
    """The blocks of a document, as lists of lines without their indentation."""
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
    """The command lines, each with its continuation lines."""
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
    """The pattern that matches a real line for this line of the document."""
    text = re.escape(re.sub(r"^( *host +: ).*", r"\1…", line.rstrip())).replace("…", ".*")
    # The text depends on the name server, and on whether there is one.
    text = text.replace(re.escape("(authoritative)"), r"\((?:non-)?authoritative\)(?:.*)")
    # The number of the rank, epoch, step, GPU or line must be equal. Other numbers may differ.
    words = re.split(r"((?:rank|epoch|step|GPU|line)\\ \d\b)", text)
    words[::2] = (re.sub(r"\d+(?:\\\.\d+)*", r"\\d+(?:\\.\\d+)*", word) for word in words[::2])
    return re.compile("".join(words) + r"\s*")


def lines_of(text):
    """The lines of the output. Python writes the end of a line separately (-u), and another rank's
    line may come before it, so each rank's text gets a line of its own."""
    return re.sub(r"(?<=\S)(?=rank \d+: )", "\n", text).splitlines()


def plain(line):
    """The line without the prefix of muster or torch."""
    return re.sub(r"^(\[rank\d+\]: |\[?[WEI]\d{4} [\d:.]+ +\d+ muster\] )", "", line.rstrip())


def is_like(line, expected):
    if not pattern(expected).fullmatch(line):
        return False
    if "loss" not in expected or "…" in expected:
        return True
    numbers = [[float(n) for n in re.findall(r"\d+\.\d{3,}", text)] for text in (line, expected)]
    return all(abs(a - b) <= LOSS_MAY_DIFFER for a, b in zip(*numbers, strict=True))


def missing(expected, streams, any_order=False):
    """The first line of the document that the program did not print; None if there is none. Within
    each stream the lines must have the document's order; between two streams the order is not
    known."""
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
    """The folder of a user who has followed the README: the tree, .venv and build/release."""

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
        """Starts a shell with the command in its own session. stdout goes to the file `log` and
        stderr to `log`.err, because muster would not keep the order of the ranks in one file."""
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
        """Stops all processes of the session, if it still runs."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()

    def in_background(self, command, log):
        """Starts a command and waits until a process listens at the port."""
        process = self.start(command, log)

        def listens():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", int(self.port))) == 0
        wait_for(listens, command)
        return process

    def until(self, command, expected, log, bound_s, **start):
        """Runs the command until it has printed all expected lines, and then stops it. Fails if a
        line does not appear."""
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
