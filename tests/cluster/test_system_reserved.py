from __future__ import annotations

import pytest

from moorage.api import quantity
from moorage.cluster.reservations import system_reserved

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("memory_mib", "reserved_mib"),
    [(512, 128), (1024, 256), (4096, 256), (8192, 409), (24 * 1024, 1024), (512 * 1024, 1024)],
)
def test_reserved_memory_follows_the_hosts_memory(memory_mib: int, reserved_mib: int) -> None:
    assert system_reserved(memory_mib * MIB, 32768)["memory"] == f"{reserved_mib}Mi"


@pytest.mark.parametrize(("pids", "reserved"), [(100, 10), (32768, 3276), (4194304, 4096)])
def test_process_ids_are_reserved(pids: int, reserved: int) -> None:
    assert quantity.parse(system_reserved(MIB, pids)["pid"]).value == reserved
