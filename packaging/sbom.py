"""The parts of a release as an SPDX 2.3 document: what a scanner for known weaknesses reads."""
import json
import uuid

import release
import third_party


def part(name, version, licence, reference):
    return {
        "SPDXID": "SPDXRef-" + "".join(c if c.isalnum() else "-" for c in name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        **({"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": reference}]} if reference else {}),
    }


def document(arch, zig_version, libraries, files):
    """`libraries`: what third_party.inside() found. `files`: the programs, as {path: SHA-256}."""
    versions = third_party.locked_versions(arch)
    ours = part("muster", release.version(), "Apache-2.0", "")
    parts = [part(name, third_party.upstream(versions[package]), licence,
                  f"pkg:deb/debian/{package}@{versions[package].replace('+', '%2B')}"
                  f"?arch={third_party.debian_arch(arch, package)}")
             for name, licence, package in libraries]
    parts += [part(name, f"of ziglang {zig_version}", licence, f"pkg:pypi/ziglang@{zig_version}")
              for name, licence, _ in third_party.FROM_COMPILER]
    name = f"muster-{release.version()}-linux-{arch}"
    seed = json.dumps([name, files], sort_keys=True)
    programs = [{"SPDXID": f"SPDXRef-File-{path.replace('/', '-')}", "fileName": f"./{path}",
                 "checksums": [{"algorithm": "SHA256", "checksumValue": checksum}],
                 "licenseConcluded": "Apache-2.0", "copyrightText": "NOASSERTION"}
                for path, checksum in sorted(files.items())]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])]
    relations += [(ours["SPDXID"], "CONTAINS", p["SPDXID"]) for p in programs]
    relations += [(p["SPDXID"], "STATIC_LINK", each["SPDXID"]) for p in programs for each in parts]
    return json.dumps({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, seed)}",
        "creationInfo": {"created": release.date_text("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: muster-scripts-package"]},
        "packages": [ours, *parts],
        "files": programs,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                          for a, kind, b in relations],
    }, indent=2) + "\n"
