"""The systemd unit of the engine's page is one that systemd accepts."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.documents import REPOSITORY, blocks

PAGE = REPOSITORY / "docs" / "how-to" / "engine-for-kubelet.md"


def unit() -> str:
    (text,) = [block.text for block in blocks(PAGE.read_text()) if block.language == "ini"]
    return text


def test_a_restart_of_the_service_leaves_containers_alone() -> None:
    parsed = ConfigParser(interpolation=None, strict=True)
    parsed.read_string(unit())
    service = parsed["Service"]
    assert service["Type"] == "notify"
    assert service["KillMode"] == "process"
    assert service["ExecStart"].split()[1] == "engine"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    file = tmp_path / "moorage-engine.service"
    # The program is not installed at the page's path.
    file.write_text(unit().replace("/opt/moorage/bin/moor", "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if file.name in line]
    assert not complaints, done.stderr
