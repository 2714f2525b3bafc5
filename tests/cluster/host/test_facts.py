from __future__ import annotations

import asyncio
import os
from pathlib import Path

from moorage.cluster.host import gather


def test_a_data_directory_that_is_not_there_yet_is_on_its_parents_disk(tmp_path: Path) -> None:
    host = asyncio.run(gather(tmp_path / "a" / "b c"))
    assert host.disk.directory == tmp_path
    assert host.disk.total_bytes >= host.disk.free_bytes > 0
    assert host.is_root == (os.geteuid() == 0)
    assert (host.disk.overlay is None) == (not host.is_root)
    assert host.memory_bytes > 0
    assert list(tmp_path.iterdir()) == []
