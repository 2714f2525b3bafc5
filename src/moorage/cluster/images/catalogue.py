"""Built-in images of a cluster, built on the host from its own packages.

A cluster must start without a registry, and its programs should receive the host's security
updates: busybox comes from `busybox-static`, pause from `catatonit` (whose `-P` waits for signals
and reaps), or from busybox if catatonit is missing. The image names have a domain without a
registry, so that none of them can be mistaken for a published image.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.cluster.images.archive import Image
from moorage.cluster.images.layer import (
    SHARED_DIRECTORY_MODE,
    Directory,
    Entry,
    File,
    HardLink,
    write_layer,
)
from moorage.linux.program import Program
from moorage.runtimes.probing.programs import PROBE_IMAGE, program_files

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
        return (_catatonit_pause(catatonit),)
    base = write_layer(_busybox_files(busybox))
    platform = busybox.program.platform
    return (
        _busybox_pause(busybox) if catatonit is None else _catatonit_pause(catatonit),
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
            layers=(base, write_layer(_server_files())),
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


def _catatonit_pause(catatonit: Program) -> Image:
    return Image(
        name=PAUSE,
        platform=catatonit.platform,
        layers=(write_layer({"pause": File(catatonit.content, _PROGRAM_MODE)}),),
        entrypoint=("/pause", "-P"),
        description="catatonit, from the host's package, holding a pod's namespaces",
    )


def _busybox_pause(busybox: Busybox) -> Image:
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


def _busybox_files(busybox: Busybox) -> dict[str, Entry]:
    # Hard links, as in the published image: masking /bin/ls masks no other command.
    commands = {f"bin/{name}": HardLink("bin/busybox") for name in busybox.commands}
    return {
        **_DIRECTORIES,
        **{path: File(content) for path, content in _ACCOUNTS.items()},
        **commands,
        "bin/busybox": File(busybox.program.content, _PROGRAM_MODE),
        "usr/bin/env": HardLink("bin/busybox"),
    }


def _server_files() -> dict[str, Entry]:
    return {"usr/bin/serve": File(_SERVE, _PROGRAM_MODE), "www/index.html": File(_PAGE)}


def _probe_files(architecture: str) -> dict[str, Entry]:
    return {
        path: File(content, _PROGRAM_MODE) for path, content in program_files(architecture).items()
    }
