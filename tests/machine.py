"""What a cluster could leave behind on this machine.

All that a cluster has outside its directory has its id in its name: eight hex digits. Other
clusters may run beside a test, so what belongs to one that lives is left out.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NAMED = re.compile(r"moor(?:age)?[-/]([0-9a-f]{8})\b")
_CGROUPS = Path("/sys/fs/cgroup")


def demo_processes() -> set[str]:
    """Command lines of what belongs to a demo."""
    return {" ".join(each) for each in _command_lines() if "moorage-demo-" in " ".join(each)}


def machine() -> dict[str, set[str]]:
    """Mounts, links, cgroups, rules, directories and processes, by the id that is in their names.

    Directories of demos are there by their own names.
    """
    found: dict[str, set[str]] = {}
    for thing in _things():
        for name in _NAMED.findall(thing):
            found.setdefault(name, set()).add(thing)
    for directory in Path("/var/lib").glob("moorage-demo-*"):
        found[directory.name] = {str(directory)}
    return found


def leftovers(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What there is of clusters that came since and live no more."""
    now, living = machine(), _living()
    return {name: found for name, found in now.items() if name not in before.keys() | living}


def _things() -> Iterator[str]:
    yield from (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    yield from (each.name for each in Path("/sys/class/net").iterdir())
    yield from map(str, (*_CGROUPS.glob("moorage-*"), *_CGROUPS.glob("*/moorage-*")))
    yield from map(str, Path("/run/moorage").glob("*"))
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False)
    yield from rules.stdout.splitlines()
    yield from map(" ".join, _command_lines())


def _living() -> set[str]:
    """The ids of the clusters whose parts run, and the names of their directories."""
    found = set()
    for words in _command_lines():
        if "moorage.cluster.parts" in words[:4] and len(words) > 4:
            directory = Path(words[4])
            try:
                settings = json.loads((directory / "cluster.json").read_text())
            except (FileNotFoundError, ValueError):
                continue
            found |= {directory.name, settings["cluster_id"]}
    return found


def _command_lines() -> Iterator[list[str]]:
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                text = (each / "cmdline").read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield text.rstrip("\0").split("\0")
