"""The list of parts of a release (SBOM), as an SPDX 2.3 document: scanners for known vulnerabilities read it."""
import hashlib
import json
import uuid

import release
import third_party


def identifier(name):
    """SPDX allows letters, digits, "." and "-" in an identifier."""
    return "SPDXRef-" + "".join(c if c.isascii() and (c.isalnum() or c == ".") else "-" for c in name)


def part(name, version, licence, reference):
    """A library that the programs contain. The document does not list the library's files."""
    return {
        "SPDXID": identifier(f"Package-{name}"),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": reference}],
    }


def file_entry(tree, path):
    name = str(path.relative_to(tree))
    is_program = path.parent == tree / "bin"
    return {
        "SPDXID": identifier(f"File-{name}"),
        "fileName": f"./{name}",
        "fileTypes": ["BINARY"] if is_program else ["TEXT"],
        # SPDX 2.3, 8.4: SHA1 is mandatory.
        "checksums": [{"algorithm": "SHA1", "checksumValue": release.sha1(path)},
                      {"algorithm": "SHA256", "checksumValue": release.sha256(path)}],
        "licenseConcluded": "Apache-2.0",
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def verification_code(files):
    """SPDX 2.3, 7.9: SHA-1 of the files' SHA-1 sums, sorted and joined."""
    sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    return hashlib.sha1("".join(sums).encode(), usedforsecurity=False).hexdigest()


def document(arch, zig_version, libraries, tree, tarball):
    """`libraries`: the result of third_party.inside(). `tree`: a folder with the files of `tarball`.

    The document describes the tarball. The wheel and the .deb files contain the same programs."""
    versions = third_party.locked_versions(arch)
    files = [file_entry(tree, path) for path in sorted(tree.rglob("*"))
             if path.is_file() and not path.is_symlink()]
    programs = [file for file in files if file["fileTypes"] == ["BINARY"]]
    ours = {
        "SPDXID": identifier("Package-muster"),
        "name": "muster",
        "versionInfo": release.version(),
        "packageFileName": tarball.name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification_code(files)},
        "checksums": [{"algorithm": "SHA256", "checksumValue": release.sha256(tarball)}],
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "licenseInfoFromFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }
    parts = [part(name, third_party.upstream(versions[package]), licence,
                  f"pkg:deb/debian/{package}@{versions[package].replace('+', '%2B')}"
                  f"?arch={third_party.debian_arch(arch, package)}")
             for name, licence, package in libraries]
    parts += [part(name, f"of ziglang {zig_version}", licence, f"pkg:pypi/ziglang@{zig_version}")
              for name, licence, _ in third_party.FROM_COMPILER]
    name = f"muster-{release.version()}-linux-{arch}"
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    relations += [(ours["SPDXID"], "CONTAINS", file["SPDXID"]) for file in files]
    relations += [(program["SPDXID"], "STATIC_LINK", each["SPDXID"]) for program in programs for each in parts]
    # The namespace is unique for each content of the document, and the same for the same content.
    seed = json.dumps([name, files, parts], sort_keys=True)
    return json.dumps({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, seed)}",
        "creationInfo": {"created": release.date_text("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: muster-scripts-package"]},
        "packages": [ours, *parts],
        "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                          for a, kind, b in relations],
    }, indent=2) + "\n"
