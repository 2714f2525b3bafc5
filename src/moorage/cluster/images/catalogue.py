"""Built-in images of a cluster, built on the host from its own packages.

A cluster must start without a registry, and its programs should receive the host's security
updates: busybox comes from `busybox-static`, pause from `catatonit` (whose `-P` waits for signals
and reaps), or from busybox if catatonit is missing. The image names have a domain without a
registry, so that none of them can be mistaken for a published image.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.cluster.images.archive import Image
from moorage.linux.program import Program
from moorage.runtimes.probing.programs import PROBE_IMAGE, program_files

# Image layers as tar archives whose bytes depend on nothing but their content.
#
# Times are zero, owners are root, entries are sorted by path, so the same programs result in the
# same digest on every host, and an image is imported once. Source: OCI image-spec, "Image Layer
# Filesystem Changeset".

DIRECTORY_MODE = 0o755
SHARED_DIRECTORY_MODE = 0o1777


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of a layer."""

    mode: int = DIRECTORY_MODE


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a layer."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class HardLink:
    """Another name of a file in the same layer; `target` is its path there."""

    target: str


Entry = Directory | File | HardLink


def write_layer(entries: Mapping[str, Entry]) -> bytes:
    """Return an uncompressed layer as a tar archive.

    Paths are relative; missing parent directories are added. Raises ValueError for a link whose
    target is not a file of the layer.
    """
    everything = {**_implied_directories(entries), **entries}
    for path, entry in entries.items():
        if isinstance(entry, HardLink) and not isinstance(everything.get(entry.target), File):
            raise ValueError(f"{path} links to {entry.target}, which is not a file of the layer")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        # A link must come after its target.
        for path in sorted(everything, key=lambda path: (_is_link(everything[path]), path)):
            header, content = _header(path, everything[path])
            archive.addfile(header, content)
    return buffer.getvalue()


def _implied_directories(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    directories: dict[str, Entry] = {}
    for path in entries:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            directories["/".join(parts[:depth])] = Directory()
    return directories


def _is_link(entry: Entry) -> bool:
    return isinstance(entry, HardLink)


def _header(path: str, entry: Entry) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    header = tarfile.TarInfo(path)
    if isinstance(entry, Directory):
        header.type, header.mode = tarfile.DIRTYPE, entry.mode
        return header, None
    if isinstance(entry, HardLink):
        header.type, header.linkname, header.mode = tarfile.LNKTYPE, entry.target, 0o755
        return header, None
    header.size, header.mode = len(entry.content), entry.mode
    return header, io.BytesIO(entry.content)


DOMAIN = "moorage.local"
PAUSE = f"{DOMAIN}/pause:1"
BUSYBOX = f"{DOMAIN}/busybox:1"
NGINX_STAND_IN = f"{DOMAIN}/nginx-stand-in:1"

BUSYBOX_PACKAGE = "busybox-static"
CATATONIT_PACKAGE = "catatonit"

_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_PROGRAM_MODE = 0o755
_ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n"
    b"nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": b"root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
}
_DIRECTORIES = {
    **dict.fromkeys(("dev", "home", "proc", "sys", "usr/bin", "usr/sbin", "var/log"), Directory()),
    "root": Directory(0o700),
    "tmp": Directory(SHARED_DIRECTORY_MODE),
}
_PAGE = b"""<!doctype html>
<title>Stand-in for nginx</title>
<h1>Stand-in for nginx</h1>
<p>This page comes from busybox httpd, which stands in for nginx where no registry can be
reached.</p>
"""
# As PID 1 of a container, httpd would ignore signals that it has no handler for.
_SERVE = b"""#!/bin/sh
httpd -f -v -p 80 -h /www &
trap 'kill $!; exit 0' TERM QUIT INT
wait
"""
_PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 2147483 & wait; done"


@dataclass(frozen=True, slots=True)
class Busybox:
    """The busybox program and the names of its commands."""

    program: Program
    commands: tuple[str, ...]


class NoPauseError(Exception):
    """No pause image can be built from this host's programs; `reasons` says why."""

    def __init__(self, reasons: Iterable[str]) -> None:
        super().__init__("no image for pods' sandboxes can be made: " + "; ".join(reasons))


def images_from(busybox: Busybox | None, catatonit: Program | None) -> tuple[Image, ...]:
    """Build pause, busybox, the stand-in for nginx and the probes' image from these programs.

    Without busybox, builds pause only. Raises NoPauseError without either program.
    """
    if busybox is None:
        if catatonit is None:
            raise NoPauseError(("neither catatonit nor busybox is installed",))
        return (catatonit_pause(catatonit),)
    base = write_layer(busybox_files(busybox))
    platform = busybox.program.platform
    return (
        busybox_pause(busybox) if catatonit is None else catatonit_pause(catatonit),
        Image(
            name=BUSYBOX,
            platform=platform,
            layers=(base,),
            command=("sh",),
            environment=_PATH,
            description="busybox, from the host's package",
        ),
        Image(
            name=NGINX_STAND_IN,
            platform=platform,
            layers=(base, write_layer(server_files())),
            command=("/usr/bin/serve",),
            environment=_PATH,
            ports=("80/tcp",),
            description="busybox httpd with one page, standing in for nginx",
        ),
        Image(
            name=PROBE_IMAGE,
            platform=platform,
            layers=(base, write_layer(_probe_files(platform.architecture))),
            command=("sh",),
            environment=_PATH,
            description="busybox, and the programs that probe runtime handlers",
        ),
    )


def catatonit_pause(catatonit: Program) -> Image:
    return Image(
        name=PAUSE,
        platform=catatonit.platform,
        layers=(write_layer({"pause": File(catatonit.content, _PROGRAM_MODE)}),),
        entrypoint=("/pause", "-P"),
        description="catatonit, from the host's package, holding a pod's namespaces",
    )


def busybox_pause(busybox: Busybox) -> Image:
    files: dict[str, Entry] = {
        "bin/busybox": File(busybox.program.content, _PROGRAM_MODE),
        "bin/sh": HardLink("bin/busybox"),
        "bin/sleep": HardLink("bin/busybox"),
    }
    return Image(
        name=PAUSE,
        platform=busybox.program.platform,
        layers=(write_layer(files),),
        entrypoint=("/bin/sh", "-c", _PAUSE),
        environment=_PATH,
        description="busybox, from the host's package, holding a pod's namespaces",
    )


def busybox_files(busybox: Busybox) -> dict[str, Entry]:
    # Hard links, as in the published image: masking /bin/ls masks no other command.
    commands = {f"bin/{name}": HardLink("bin/busybox") for name in busybox.commands}
    return {
        **_DIRECTORIES,
        **{path: File(content) for path, content in _ACCOUNTS.items()},
        **commands,
        "bin/busybox": File(busybox.program.content, _PROGRAM_MODE),
        "usr/bin/env": HardLink("bin/busybox"),
    }


def server_files() -> dict[str, Entry]:
    return {"usr/bin/serve": File(_SERVE, _PROGRAM_MODE), "www/index.html": File(_PAGE)}


def _probe_files(architecture: str) -> dict[str, Entry]:
    return {
        path: File(content, _PROGRAM_MODE) for path, content in program_files(architecture).items()
    }
