"""Functions that all packages of a release share: version, date, and archives whose bytes are reproducible."""
import gzip
import hashlib
import io
import os
import pathlib
import re
import sys
import tarfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = "Launches distributed PyTorch training: torchrun's place, in C++"


def version():
    """The version in CMakeLists.txt."""
    return re.search(r"^project\(muster VERSION (\d+\.\d+\.\d+)",
                     (SOURCE / "CMakeLists.txt").read_text(), re.M)[1]


def date():
    """SOURCE_DATE_EPOCH, in seconds since 1970. scripts/package sets it to the date of the commit."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def date_text(form):
    return time.strftime(form, time.gmtime(date()))


def compressed(data):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=date()) as file:
        file.write(data)
    return buffer.getvalue()


def write_tar(tree, into, top):
    """Writes the tree as TOP/... into a .tar.gz: sorted, owned by root, every file with the date of the release."""
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
    """Sets the modes, which depend on the umask until then: 755 for folders and programs, 644 for other files. Sets
    the date of the release, too."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (date(), date()))


def programs(tree):
    """The programs, without the links to programs (muster-launch)."""
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


def sha1(path):
    """SPDX requires SHA-1 for every file; nothing here relies on its strength."""
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
