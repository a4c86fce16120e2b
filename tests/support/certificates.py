#!/usr/bin/env python3
"""Creates certificates for tests with the openssl program: a CA, servers, clients, and certificates
that must be refused."""
import pathlib
import subprocess
import sys

HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]


class Authority:
    """A CA in a folder: NAME.pem and NAME.key."""

    def __init__(self, folder, name="ca", new=True):
        self.folder = pathlib.Path(folder)
        self.name = name
        if new:
            self.request(name, "/CN=muster test " + name, 30)

    def path(self, name):
        return self.folder / name

    def issue(self, name, alternative_names=HERE):
        """Creates NAME.pem and NAME.key, signed by this CA."""
        self.request(name, "/CN=" + name, 30, "-CA", self.path(self.name + ".pem"),
                     "-CAkey", self.path(self.name + ".key"), "-addext", "basicConstraints=critical,CA:FALSE",
                     "-addext", "subjectAltName=" + alternative_names)
        return self.path(name + ".pem"), self.path(name + ".key")

    def issue_nameless(self, name, common_name):
        """Issues a certificate with a common name and without alternative names."""
        self.request(name, "/CN=" + common_name, 30, "-CA", self.path(self.name + ".pem"),
                     "-CAkey", self.path(self.name + ".key"), "-addext", "basicConstraints=critical,CA:FALSE")

    def issue_expired(self, name):
        """Issues a certificate that expired yesterday: `openssl req` alone cannot do this."""
        wish = self.path(name + ".csr")
        run("req", *NEW_KEY, "-subj", "/CN=" + name, "-addext", "subjectAltName=" + HERE,
            "-keyout", self.path(name + ".key"), "-out", wish)
        run("x509", "-req", "-in", wish, "-CA", self.path(self.name + ".pem"), "-CAkey", self.path(self.name + ".key"),
            "-days", "-1", "-copy_extensions", "copy", "-out", self.path(name + ".pem"))
        self.path(name + ".key").chmod(0o600)

    def request(self, name, subject, days, *more):
        key = self.path(name + ".key")
        run("req", "-x509", *NEW_KEY, "-subj", subject, "-days", days, "-keyout", key,
            "-out", self.path(name + ".pem"), *more)
        key.chmod(0o600)


def any_names(*names):
    """Alternative names with exactly these bytes as DNS names, which openssl would not create from
    a text."""
    def value(tag, content):
        size = len(content)
        length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
        return tag + length + content
    return "DER:" + value(b"\x30", b"".join(value(b"\x82", name) for name in names)).hex(":")


def run(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


def make_all(folder):
    """Creates the certificates for the unit tests."""
    authority = Authority(folder)
    authority.issue("server")
    authority.issue("client", "DNS:node")
    authority.issue_expired("expired")
    authority.issue("elsewhere", "DNS:elsewhere.example.org,IP:192.0.2.1")
    Authority(folder, "stranger").issue("strange")


def make_named(folder):
    """Creates clients with the alternative names for the unit tests of names, issued by the
    existing CA."""
    authority = Authority(folder, new=False)
    authority.issue("named", "DNS:Node1.Example.org,IP:10.0.0.1,URI:spiffe://a/b,email:a@b.org,DNS:team-a,DNS:*.lab.org")
    authority.issue_nameless("nameless", "node1.example.org")
    authority.issue("odd", any_names(b"node1.example.org\0.evil.org", b"", b"a b", b"n\xc3\xb6de", b"x" * 300, b"good"))
    authority.issue("many", any_names(*(b"name%d" % i for i in range(100))))


if __name__ == "__main__":
    make_named(sys.argv[1]) if sys.argv[2:] == ["named"] else make_all(sys.argv[1])
