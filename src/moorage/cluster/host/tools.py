"""Programs that a node uses, and their versions.

All are run concurrently, each with a deadline. A program that prints no version is a tool without
version, whose complaint `moor doctor` reports.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.command import CommandError, run
from moorage.linux.program import parse_version

ASK_DEADLINE_S = 10.0

# Program → the arguments that make it print its version.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "conmon": ("--version",),
    "skopeo": ("--version",),
    "runc": ("--version",),
    "crun": ("--version",),
    "runsc": ("--version",),
    "ip": ("-V",),
    "iptables": ("--version",),
    "nft": ("--version",),
    "conntrack": ("--version",),
    "busybox": (),
    "catatonit": ("--version",),
}

CNI_DIRECTORIES = (Path("/opt/cni/bin"), Path("/usr/lib/cni"), Path("/usr/libexec/cni"))
CNI_NEEDED = ("bandwidth", "host-local", "loopback", "portmap", "ptp")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program on this host; `version` is empty if it printed none, for the reason `complaint`."""

    path: Path
    version: str = ""
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class CniPlugins:
    """The directory of the CNI plugins, None if there is none, and the plugins in it."""

    directory: Path | None
    plugins: frozenset[str] = frozenset()

    @property
    def missing(self) -> tuple[str, ...]:
        """The plugins that a node needs and that the directory lacks."""
        return tuple(name for name in CNI_NEEDED if name not in self.plugins)


@dataclass(frozen=True, slots=True)
class Firewall:
    """Whether the NAT table of iptables is usable in this network namespace, or why not."""

    is_usable: bool
    complaint: str = ""


async def find_tools(path: str, deadline_s: float = ASK_DEADLINE_S) -> dict[str, Tool]:
    """Return every tool on the search path, by name."""
    tasks: dict[str, asyncio.Task[Tool]] = {}
    async with asyncio.TaskGroup() as group:
        for name, arguments in TOOLS.items():
            where = shutil.which(name, path=path)
            if where is not None:
                tasks[name] = group.create_task(_ask(Path(where), arguments, deadline_s))
    return {name: task.result() for name, task in tasks.items()}


def find_cni(directories: tuple[Path, ...] = CNI_DIRECTORIES) -> CniPlugins:
    """Return the first directory with all plugins that a node needs, else the one with the most."""
    candidates = [
        CniPlugins(directory, frozenset(plugin.name for plugin in directory.iterdir()))
        for directory in directories
        if directory.is_dir()
    ]
    return min(candidates, key=lambda plugins: len(plugins.missing), default=CniPlugins(None))


async def check_firewall(path: str) -> Firewall:
    """Check that iptables can read the NAT table, which needs kernel support and privileges."""
    program = shutil.which("iptables", path=path)
    if program is None:
        return Firewall(is_usable=False, complaint="iptables is not on PATH")
    try:
        answer = await run(
            [program, "-w", "2", "-t", "nat", "-S", "POSTROUTING"], deadline_s=ASK_DEADLINE_S
        )
    except CommandError as error:
        return Firewall(is_usable=False, complaint=error.why)
    return Firewall(answer.is_success, "" if answer.is_success else answer.complaint)


async def _ask(path: Path, arguments: tuple[str, ...], deadline_s: float) -> Tool:
    try:
        answer = await run([path, *arguments], deadline_s=deadline_s)
    except CommandError as error:
        return Tool(path, complaint=error.why)
    version = parse_version(answer.text or answer.error.decode(errors="replace"))
    return Tool(path, str(version or ""), "" if version else answer.complaint)
