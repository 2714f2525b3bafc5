"""The demo shows every example's fate and leaves the machine as it found it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.running import EXAMPLES, MOOR, skip_without_runtimes

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


def _processes() -> set[str]:
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


def _machine() -> dict[str, set[str]]:
    """What a cluster could leave behind: mounts, namespaces, links, cgroups, rules, folders."""
    netns = Path("/run/netns")
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return {
        "mounts": {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()},
        "netns": {each.name for each in netns.iterdir()} if netns.is_dir() else set(),
        "links": {each.name for each in Path("/sys/class/net").iterdir()},
        "cgroups": {
            str(each) for each in Path("/sys/fs/cgroup").glob("**/moorage-*") if each.is_dir()
        },
        "rules": {line for line in rules.splitlines() if "moor" in line},
        "folders": {str(each) for each in Path("/var/lib").glob("moorage-demo-*")},
        "run": {str(each) for each in Path("/run/moorage").glob("*")},
    }


@pytest.mark.timeout(240)
def test_the_demo_twice_in_a_row(tmp_path: Path) -> None:
    skip_without_runtimes()
    before = _machine()
    for _ in range(2):
        done = subprocess.run(
            [*MOOR, "demo", "--examples", str(EXAMPLES), "-o", "json"],
            capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = {row["pod"]: row for row in json.loads(done.stdout)}
        assert {"crun-limited", "native-app", "metered-app", "no-class", "kata-app"} <= set(rows)
        for name, runtime in (("crun-limited", "crun"), ("native-app", "runc")):
            assert rows[name]["status"] == "Running"
            assert rows[name]["inside"] == runtime
            assert rows[name]["kernel"]
        assert 'lack runtime handler "kata-containers"' in rows["kata-app"]["reason"]
        assert not _processes()
        # What another test's cluster gives back meanwhile is no concern of this one.
        left = {kind: found - before[kind] for kind, found in _machine().items()}
        assert not any(left.values()), left
