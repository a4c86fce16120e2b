"""Makes the Debian packages of one build: muster (the programs) and muster-services (systemd's units)."""
import os
import shutil
import subprocess

import release

HERE = release.SOURCE / "packaging"
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
MAINTAINER = os.environ.get("MUSTER_MAINTAINER", "The muster developers <muster@example.org>")
COMPONENTS = {"muster": ["programs", "recipes"], "muster-services": ["services"]}


def changelog(package):
    """Debian's changelog of the package. It refers to CHANGELOG.md, which the package contains as NEWS.gz."""
    return (f"{package} ({release.version()}) unstable; urgency=medium\n\n"
            f"  * Release {release.version()}: /usr/share/doc/muster/NEWS.gz.\n\n"
            f" -- {MAINTAINER}  {release.date_text('%a, %d %b %Y %H:%M:%S +0000')}\n")


def add_documents(package, tree, notices):
    documents = tree / "usr/share/doc" / package
    documents.mkdir(parents=True)
    (documents / "changelog.gz").write_bytes(release.compressed(changelog(package).encode()))
    shutil.copy(HERE / "debian/copyright", documents / "copyright")
    if package == "muster":
        (documents / "THIRD_PARTY_NOTICES.gz").write_bytes(release.compressed(notices.encode()))
        (documents / "NEWS.gz").write_bytes(
            release.compressed((release.SOURCE / "CHANGELOG.md").read_bytes()))


def tree_of(package, stage, work, notices):
    """A folder with the package's files. `stage` is a function that installs components below /usr of a folder."""
    tree = work / package
    stage(tree, "/usr", COMPONENTS[package])
    for page in tree.rglob("share/man/man*/*"):
        page.with_name(page.name + ".gz").write_bytes(release.compressed(page.read_bytes()))
        page.unlink()
    if package == "muster":
        # Debian's zsh does not read share/zsh/site-functions.
        (tree / "usr/share/zsh/site-functions").rename(tree / "usr/share/zsh/vendor-completions")
        os.symlink("muster.1.gz", tree / "usr/share/man/man1/muster-launch.1.gz")
    else:
        (tree / "etc/default").mkdir(parents=True)
        shutil.copy(release.SOURCE / "configs/musterd.default", tree / "etc/default/musterd")
    add_documents(package, tree, notices)
    release.set_modes(tree)
    return tree


def write(arch, stage, work, notices, folder):
    """Writes both .deb files into `folder`, and returns their paths."""
    files = []
    for package in COMPONENTS:
        tree = tree_of(package, stage, work, notices)
        made = work / f"{package}-deb"
        settings = {"TREE": tree, "PACKAGE": package, "VERSION": release.version(), "OUT": made,
                    "ARCH": DEBIAN_ARCH[arch] if package == "muster" else "all", "MAINTAINER": MAINTAINER}
        config = work / f"{package}.cmake"
        config.write_text("".join(f'set({name} "{value}")\n' for name, value in settings.items())
                          + f"include({HERE / 'deb.cmake'})\n")
        subprocess.run(["cpack", "--config", str(config)], check=True, stdout=subprocess.DEVNULL, cwd=work)
        deb = next(made.glob("*.deb"))
        files.append(shutil.copy(deb, folder / deb.name))
    return files
