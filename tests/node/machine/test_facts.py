from __future__ import annotations

import pytest

from moorage.node.machine.facts import os_image, parse_meminfo
from moorage.node.machine.pressure import Pressure, Supply, pressure_of


def test_memory() -> None:
    text = "MemTotal:       2048 kB\nMemAvailable:   1024 kB\nHugePages_Total:       3\nOdd\n"
    assert parse_meminfo(text) == {
        "MemTotal": 2 << 20,
        "MemAvailable": 1 << 20,
        "HugePages_Total": 3,
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            'NAME=x\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("PRETTY_NAME=Plain\n", "Plain"),
        ("", "Linux"),
    ],
)
def test_the_systems_name(text: str, wanted: str) -> None:
    assert os_image(text) == wanted


ENOUGH = {"memory_bytes": 1 << 30, "disk_share": 0.5, "inodes_share": 0.5, "pids_share": 0.5}


@pytest.mark.parametrize(
    ("less", "wanted"),
    [
        ({}, Pressure()),
        ({"memory_bytes": (100 << 20) - 1}, Pressure(memory=True)),
        ({"memory_bytes": 100 << 20}, Pressure()),
        ({"disk_share": 0.09}, Pressure(disk=True)),
        ({"inodes_share": 0.04}, Pressure(disk=True)),
        ({"pids_share": 0.04}, Pressure(pids=True)),
    ],
)
def test_pressure(less: dict[str, float], wanted: Pressure) -> None:
    assert pressure_of(Supply(**(ENOUGH | less))) == wanted  # type: ignore[arg-type]
