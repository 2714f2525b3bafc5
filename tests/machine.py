"""What a demo's cluster could leave behind on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def demo_processes() -> set[str]:
    """Command lines of what belongs to a demo."""
    found = set()
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                text = (each / "cmdline").read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "moorage-demo-" in text:
                found.add(text)
    return found


def machine() -> dict[str, set[str]]:
    """What a cluster could leave behind: mounts, namespaces, links, cgroups, rules, folders."""
    netns = Path("/run/netns")
    mounts = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return {
        "mounts": {each for each in mounts if "moorage" in each},
        "netns": {each.name for each in netns.iterdir()} if netns.is_dir() else set(),
        "links": {each.name for each in Path("/sys/class/net").iterdir() if _is_ours(each)},
        "cgroups": {
            str(each) for each in Path("/sys/fs/cgroup").glob("**/moorage-*") if each.is_dir()
        },
        "rules": {line for line in rules.splitlines() if "moor" in line},
        "folders": {str(each) for each in Path("/var/lib").glob("moorage-demo-*")},
        "run": {str(each) for each in Path("/run/moorage").glob("*")},
    }


def _is_ours(link: Path) -> bool:
    """A cluster's bridge, or one end of a pair that no bridge has any more."""
    name = link.name
    return name.startswith("moor-") or (name.startswith("veth") and not (link / "master").exists())


def leftovers(before: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is there now and was not before, by kind; what vanished is no concern."""
    new = {kind: found - before[kind] for kind, found in machine().items()}
    return {kind: found for kind, found in new.items() if found}
