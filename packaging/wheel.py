"""Makes the wheel muster-launch. pip installs the programs as scripts: they start without Python."""
import base64
import hashlib
import stat
import zipfile

import release

NAME = "muster_launch"  # On PyPI, the name "muster" belongs to another project.


def tags(arch):
    return [f"py3-none-manylinux_2_17_{arch}", f"py3-none-manylinux2014_{arch}"]


def file_name(arch):
    return f"{NAME}-{release.version()}-py3-none-manylinux_2_17_{arch}.manylinux2014_{arch}.whl"


def metadata():
    return (f"Metadata-Version: 2.1\nName: muster-launch\nVersion: {release.version()}\n"
            f"Summary: {release.SUMMARY}\nLicense: Apache-2.0\n"
            "Classifier: Environment :: Console\nClassifier: Operating System :: POSIX :: Linux\n"
            "Classifier: License :: OSI Approved :: Apache Software License\n"
            "Classifier: Programming Language :: C++\nClassifier: Programming Language :: Python :: 3\n"
            "Classifier: Topic :: System :: Distributed Computing\n"
            "License-File: LICENSE\nLicense-File: THIRD_PARTY_NOTICES\n"
            "Description-Content-Type: text/markdown\n\n"
            + (release.SOURCE / "packaging/pypi.md").read_text())


def contents(arch, tree, notices):
    """The wheel's files, as [(path in the wheel, bytes, whether it is a program)]. `tree` has the tarball's files."""
    info = f"{NAME}-{release.version()}.dist-info"
    data = f"{NAME}-{release.version()}.data"
    # A wheel cannot contain links, so muster-launch is a copy of muster. The program looks at its own name.
    entries = [(f"{data}/scripts/{path.name}", path.read_bytes(), True)
               for path in sorted((tree / "bin").iterdir())]
    for folder in ("share/bash-completion", "share/fish", "share/man", "share/muster/completions", "share/muster/python",
                   "share/zsh"):
        entries += [(f"{data}/data/{path.relative_to(tree)}", path.read_bytes(), False)
                    for path in sorted((tree / folder).rglob("*")) if path.is_file()]
    worker = tree / "share/muster/worker"
    entries += [(str(path.relative_to(worker)), path.read_bytes(), False)
                for path in sorted(worker.rglob("*")) if path.is_file()]
    wheel = "Wheel-Version: 1.0\nGenerator: muster scripts/package\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: {tag}\n" for tag in tags(arch))
    return entries + [
        (f"{info}/METADATA", metadata().encode(), False),
        (f"{info}/WHEEL", wheel.encode(), False),
        (f"{info}/licenses/LICENSE", (release.SOURCE / "LICENSE").read_bytes(), False),
        (f"{info}/licenses/THIRD_PARTY_NOTICES", notices.encode(), False)]


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write(arch, tree, notices, folder):
    entries = contents(arch, tree, notices)
    record = f"{NAME}-{release.version()}.dist-info/RECORD"
    rows = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data, _ in entries)
    entries.append((record, f"{rows}{record},,\n".encode(), False))
    moment = tuple(int(part) for part in release.date_text("%Y %m %d %H %M %S").split())
    with zipfile.ZipFile(folder / file_name(arch), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path, data, is_program in entries:
            entry = zipfile.ZipInfo(path, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: pip then uses the modes.
            entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
            file.writestr(entry, data)
    return folder / file_name(arch)
