"""What all packages of one release share: version, date, and ways to write the same bytes twice."""
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "Launches distributed PyTorch training: torchrun's place, in C++"


def version():
    """CMakeLists.txt is where it is written."""
    return re.search(r"^project\(muster VERSION (\d+\.\d+\.\d+)",
                     (SOURCE / "CMakeLists.txt").read_text(), re.M)[1]


def date():
    """Seconds: SOURCE_DATE_EPOCH, which scripts/package sets to the date of the commit."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def date_text(form):
    return time.strftime(form, time.gmtime(date()))


def compressed(data):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=date()) as file:
        file.write(data)
    return buffer.getvalue()


def write_tar(tree, into, top):
    """The tree as TOP/… in a .tar.gz, in sorted order, owned by root, all of it as old as the release."""
    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = date()
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in [tree, *sorted(tree.rglob("*"))]:
            name = pathlib.PurePath(top, path.relative_to(tree))
            tar.add(path, str(name), recursive=False, filter=plain)
    into.write_bytes(compressed(buffer.getvalue()))


def set_modes(tree):
    """Whatever umask built it: 755 for folders and programs, 644 for the rest."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (date(), date()))


def programs(tree):
    """The programs themselves, without the links to them (muster-launch)."""
    return [path for path in sorted((tree / "bin").iterdir()) if not path.is_symlink()]


def main(words):
    """Without arguments prints the version; --tar TREE FILE TOP packs a tree."""
    if words[:1] == ["--tar"]:
        tree, into, top = words[1:]
        set_modes(pathlib.Path(tree))
        write_tar(pathlib.Path(tree), pathlib.Path(into), top)
    else:
        print(version())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit():
    done = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--abbrev=12", "--dirty",
                           "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main(sys.argv[1:])
