from __future__ import annotations

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci.propagation import Peers, parse_peers, rootfs_propagation, verify_source
from moorage.wire.cri import pb

PRIVATE, SLAVE, SHARED = (
    pb.PROPAGATION_PRIVATE,
    pb.PROPAGATION_HOST_TO_CONTAINER,
    pb.PROPAGATION_BIDIRECTIONAL,
)
MOUNTS = parse_peers(
    "\n".join(
        (
            "20 1 8:1 / / rw - ext4 /dev/sda rw",
            "21 20 8:2 / /mnt/shared rw shared:3 - ext4 /dev/sdb rw",
            "22 20 8:3 / /mnt/slave rw master:3 - ext4 /dev/sdc rw",
            "23 20 8:4 / /mnt/both rw shared:4 master:3 - ext4 /dev/sdd rw",
            "24 20 8:5 / /mnt/with\\040blank rw shared:5 - ext4 /dev/sde rw",
            "25 21 8:6 / /mnt/shared/hidden rw shared:6 - ext4 /dev/sdf rw",
            "26 25 8:7 / /mnt/shared/hidden rw - ext4 /dev/sdg rw",
        )
    )
)


def test_how_mounts_travel_is_read_with_their_names() -> None:
    assert Peers("/mnt/with blank", is_shared=True, is_slave=False) in MOUNTS
    assert Peers("/mnt/both", is_shared=True, is_slave=True) in MOUNTS
    assert Peers("/", is_shared=False, is_slave=False) in MOUNTS


@pytest.mark.parametrize(
    ("propagation", "source"),
    [
        (PRIVATE, "/data"),
        (SLAVE, "/mnt/shared/a"),
        (SLAVE, "/mnt/slave"),
        (SHARED, "/mnt/shared"),
        (SHARED, "/mnt/both/deep/below"),
    ],
)
def test_sources_that_will_do(propagation: pb.MountPropagation.ValueType, source: str) -> None:
    verify_source(propagation, source, MOUNTS)


@pytest.mark.parametrize(
    ("propagation", "source", "text"),
    [
        (SHARED, "/data", "path '/data' is mounted on '/' but it is not a shared mount"),
        (SHARED, "/mnt/slave/x", "is mounted on '/mnt/slave' but it is not a shared mount"),
        (SLAVE, "/data", "is mounted on '/' but it is not a shared or slave mount"),
        (SLAVE, "/mnt/sharedx", "is mounted on '/' but"),
        (SHARED, "/mnt/shared/hidden/x", "is mounted on '/mnt/shared/hidden' but"),
    ],
)
def test_sources_that_will_not(
    propagation: pb.MountPropagation.ValueType, source: str, text: str
) -> None:
    with pytest.raises(InvalidError, match=text):
        verify_source(propagation, source, MOUNTS)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], ""),
        ([PRIVATE], ""),
        ([SLAVE, PRIVATE], "rslave"),
        ([SLAVE, SHARED], "rshared"),
        ([SHARED], "rshared"),
    ],
)
def test_the_root_travels_as_far_as_any_mount(
    asked: list[pb.MountPropagation.ValueType], expected: str
) -> None:
    assert rootfs_propagation(asked) == expected
