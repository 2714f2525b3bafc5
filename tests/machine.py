"""What a cluster could leave behind on this machine.

All that a cluster has outside its directory has its id in its name: eight hex digits. Other
clusters may run beside a test, so what belongs to one that lives is left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.subnets import ENGINE_PREFIX

_NAMED = re.compile(r"moor(?:age)?[-/]([0-9a-f]{8})\b")
_GONE_WITHIN_S = 20.0
_CGROUPS = Path("/sys/fs/cgroup")


def demo_processes() -> set[str]:
    """Command lines of what belongs to a demo."""
    return {
        " ".join(command_line)
        for command_line in _command_lines()
        if "moorage-demo-" in " ".join(command_line)
    }


def host_resources() -> dict[str, set[str]]:
    """Mounts, links, cgroups, rules, directories and processes, by the id that is in their names.

    Directories of demos are there by their own names.
    """
    result: dict[str, set[str]] = {}
    for resource in _resource_names():
        for name in _NAMED.findall(resource):
            result.setdefault(name, set()).add(resource)
    for directory in Path("/var/lib").glob("moorage-demo-*"):
        result[directory.name] = {str(directory)}
    return result


def leftovers(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leftovers of clusters that came since and have ended.

    A cluster or an engine beside this test may just be going: its processes end before its bridge
    and rules do.
    """
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (left := _leftovers(before)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _leftovers(before: dict[str, set[str]]) -> dict[str, set[str]]:
    now, running = host_resources(), _running_clusters()
    return {
        name: names
        for name, names in now.items()
        if name not in before.keys() | running and not name.startswith(ENGINE_PREFIX)
    }


def _resource_names() -> Iterator[str]:
    yield from (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    yield from (path.name for path in Path("/sys/class/net").iterdir())
    yield from map(str, (*_CGROUPS.glob("moorage-*"), *_CGROUPS.glob("*/moorage-*")))
    yield from map(str, Path("/run/moorage").glob("*"))
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False)
    yield from rules.stdout.splitlines()
    yield from map(" ".join, _command_lines())


def _running_clusters() -> set[str]:
    """The ids of the clusters whose parts run, and the names of their directories."""
    names = set()
    for words in _command_lines():
        if "moorage.cluster.parts" in words[:4] and len(words) > 4:
            directory = Path(words[4])
            try:
                settings = json.loads((directory / "cluster.json").read_text())
            except (FileNotFoundError, ValueError):
                continue
            names |= {directory.name, settings["cluster_id"]}
    return names


def _command_lines() -> Iterator[list[str]]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                text = (path / "cmdline").read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield text.rstrip("\0").split("\0")
