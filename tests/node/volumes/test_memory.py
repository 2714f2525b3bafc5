"""What the volumes of a pod may take of the node's memory."""

from __future__ import annotations

import pytest

from moorage.node.config.errors import ConfigError
from moorage.node.volumes.mounting import ObjectMemory, PodMemory

KIB, MIB = 1024, 1024 * 1024


@pytest.mark.parametrize(
    ("sizes", "fit"),
    [
        # A volume takes 64 KiB of its own, and a file its pages and 2 KiB.
        ([], 2048),
        ([0], 1985),
        ([1], 1872),
        ([4 * KIB], 1872),
        ([4 * KIB + 1], 1771),
        ([1] * 4000, 5),
        ([MIB], 120),
        ([64 * MIB], 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_so_many_volumes_fit(sizes: list[int], fit: int) -> None:
    memory = PodMemory()

    def add() -> None:
        memory.add_volume()
        memory.add_files(sizes)

    for _ in range(fit):
        add()
    with pytest.raises(ConfigError, match=r"more than 134217728 bytes .* fewer volumes"):
        add()


def test_objects_are_counted_by_their_values() -> None:
    memory = ObjectMemory(10)
    for values in (["12345"], [], ["1", "2"]):
        memory.add(values)
    with pytest.raises(ConfigError, match="larger than 10 bytes together"):
        memory.add(["1234"])
