"""Debian packages of the image: fetched by apt, which verifies them, and unpacked by name.

No maintainer script runs, so any architecture can be built on any: what scripts would do that the
parts need (the bundle of certificates) is done here. apt gets lists of its own below the build
directory, so that the machine's are not changed. Source: deb(5), apt-get(8), Debian Policy 9.1.1.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tools.image.tree import PROGRAM_MODE, Tree

PYTHON = "python3.11"
# package → patterns of what is taken of it, all if none. Documentation is left out but licences.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "base-files": ("etc/debian_version", "etc/os-release", "usr/lib/os-release"),
    "ca-certificates": ("usr/share/ca-certificates/*",),
    "netbase": ("etc/protocols", "etc/services"),
    "media-types": (),
    "libc6": (),
    "libgcc-s1": (),
    "libstdc++6": (),
    "zlib1g": (),
    "libbz2-1.0": (),
    "liblzma5": (),
    "libcrypt1": (),
    "libexpat1": (),
    "libffi8": (),
    "libsqlite3-0": (),
    "libssl3": (),
    "libuuid1": (),
    "libpython3.11-minimal": (),
    "libpython3.11-stdlib": (),
    "python3.11-minimal": (),
    # nsenter alone, by which the runtime agent calls the host's systemctl, and its libraries.
    "util-linux": ("usr/bin/nsenter",),
    "libselinux1": (),
    "libpcre2-8-0": (),
}
_LEFT_OUT = (
    "usr/share/doc/*", "usr/share/man/*", "usr/share/lintian/*", "usr/share/locale/*",
    "usr/share/binfmts/*", "usr/share/bug/*", "usr/share/applications/*", "usr/share/pixmaps/*",
    "usr/lib/python3.11/idlelib/*", "usr/lib/python3.11/lib2to3/*",
    "usr/lib/python3.11/pydoc_data/*",
    "usr/lib/python3.11/ensurepip/*", "usr/lib/python3.11/distutils/*",
    "usr/lib/python3.11/turtle.py", "usr/lib/python3.11/curses/*", "usr/lib/python3.11/tkinter/*",
    # Their libraries are not in the image, and the parts use none of them.
    "usr/lib/python3.11/lib-dynload/_curses*", "usr/lib/python3.11/lib-dynload/_dbm*",
    "usr/lib/python3.11/lib-dynload/readline*", "usr/lib/python3.11/lib-dynload/nis*",
    "usr/lib/*/gconv/*", "usr/lib/*/security/*", "usr/lib/*/engines-3/*", "usr/sbin/*",
)  # fmt: skip
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Directories at the root that are links into /usr since Debian 12; packages still name them."""
_VERSION_OF = re.compile(r"^Version: (.*)$", re.MULTILINE)
_DEADLINE_S = 900.0


@dataclass(frozen=True, slots=True)
class Package:
    """A package in the image: its control fields, and its files with their licence."""

    name: str
    version: str
    architecture: str
    source: str
    control: str


class PackageError(Exception):
    """A package cannot be fetched or read; the text says which, and why."""


def fetch(architecture: str, place: Path) -> list[Path]:
    """Fetch the packages of an architecture into a directory; return their files, by name.

    Raises PackageError.
    """
    place.mkdir(parents=True, exist_ok=True)
    state, cache = place / "state", place / "cache"
    for directory in (state / "lists" / "partial", cache / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = [
        f"APT::Architecture={architecture}", f"APT::Architectures={architecture}",
        f"Dir::State={state}", f"Dir::State::status={state}/status", f"Dir::Cache={cache}",
        "APT::Sandbox::User=root", "Acquire::Languages=none",
    ]  # fmt: skip
    apt = ["apt-get", "-qq", *(f"-o{option}" for option in options)]
    files = place / "packages"
    files.mkdir(exist_ok=True)
    _run([*apt, "update"], place)
    for old in files.glob("*.deb"):
        old.unlink()
    _run([*apt, "download", *(f"{name}:{architecture}" for name in PACKAGES)], files)
    found = sorted(files.glob("*.deb"))
    if len(found) != len(PACKAGES):
        raise PackageError(f"apt fetched {len(found)} packages of {len(PACKAGES)}")
    return found


def _run(command: list[str], directory: Path) -> bytes:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, check=False,
        timeout=_DEADLINE_S,
    )  # fmt: skip
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()
        raise PackageError(f"{command[0]} failed: {text[-1000:]}")
    return done.stdout


def unpack(file: Path, tree: Tree) -> Package:
    """Add a package's files to a tree; return what it is. Raises PackageError."""
    control = _run(["dpkg-deb", "--field", str(file)], file.parent).decode()
    fields = dict(
        line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " "
    )
    name = fields["Package"]
    patterns = PACKAGES[name]
    content = _run(["dpkg-deb", "--fsys-tarfile", str(file)], file.parent)
    hard_links: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = placed(member.name)
            if not path or not is_taken(path, patterns):
                continue
            if member.issym():
                tree.add_link(path, member.linkname)
            elif member.islnk():
                hard_links[path] = placed(member.linkname)
            elif member.isfile():
                reader = archive.extractfile(member)
                assert reader is not None
                tree.add_file(path, reader.read(), member.mode & 0o755)
    for path, target in hard_links.items():
        if target in tree:
            tree.add_file(path, tree[target].content or b"", tree[target].mode)
    source = fields.get("Source", name).split(" ")[0]
    return Package(name, fields["Version"], fields["Architecture"], source, control)


def placed(name: str) -> str:
    """Return a member's path without the directories that are links."""
    path = name.removeprefix("./").strip("/")
    first = path.partition("/")[0]
    return f"usr/{path}" if first in _MERGED and "/" in path else path


def is_taken(path: str, patterns: tuple[str, ...]) -> bool:
    if fnmatch(path, "usr/share/doc/*/copyright"):
        return True
    if any(fnmatch(path, pattern) for pattern in _LEFT_OUT):
        return False
    return not patterns or any(fnmatch(path, pattern) for pattern in patterns)


def add_base(tree: Tree, packages: list[Package]) -> None:
    """Add what maintainer scripts and an installer would: directories, accounts, certificates."""
    for name in _MERGED:
        tree.add_link(name, f"usr/{name}")
    for path in ("dev", "proc", "sys", "run", "etc", "home", "opt", "srv", "var/lib", "var/cache"):
        tree.add_directory(path)
    # A link to /run on most systems: here the account's token is mounted below it, while the
    # runtime agent has the host's /run.
    tree.add_directory("var/run")
    tree.add_directory("root", 0o700)
    for path in ("tmp", "var/tmp"):
        tree.add_directory(path, 0o1777)
    tree.add_file(
        "etc/passwd",
        b"root:x:0:0:root:/root:/usr/sbin/nologin\n"
        b"moorage:x:65532:65532:moorage:/home:/usr/sbin/nologin\n",
    )
    tree.add_file("etc/group", b"root:x:0:\nmoorage:x:65532:\n")
    tree.add_file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    certificates = [
        entry.content.strip() + b"\n"
        for path, entry in tree.items()
        if path.startswith("usr/share/ca-certificates/") and path.endswith(".crt") and entry.content
    ]
    tree.add_file("etc/ssl/certs/ca-certificates.crt", b"".join(certificates))
    tree.add_link("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")
    tree.add_link("usr/lib/ssl/certs", "/etc/ssl/certs")
    tree.remove("usr/share/ca-certificates")
    tree.add_link("usr/bin/python3", PYTHON)
    if f"usr/bin/{PYTHON}" not in tree:
        raise PackageError(f"the packages have no {PYTHON}")
    assert tree[f"usr/bin/{PYTHON}"].mode == PROGRAM_MODE
    # Scanners read the packages of an image here.
    stanzas = (
        _VERSION_OF.sub(r"Status: install ok installed\nVersion: \1", package.control.strip())
        for package in packages
    )
    tree.add_file("var/lib/dpkg/status", "\n\n".join((*stanzas, "")).encode())
