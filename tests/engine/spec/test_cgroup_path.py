from __future__ import annotations

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.spec import cgroup_path


@pytest.mark.parametrize(
    ("parent", "is_systemd", "expected"),
    [
        ("/kubepods/burstable/podu", False, "/kubepods/burstable/podu/c1"),
        ("kubepods/podu/", False, "/kubepods/podu/c1"),
        ("", False, "/moorage/c1"),
        ("/kubepods.slice/kubepods-podu.slice", True, "kubepods-podu.slice:cri-moorage:c1"),
        ("kubepods-podu.slice", True, "kubepods-podu.slice:cri-moorage:c1"),
        ("", True, "system.slice:cri-moorage:c1"),
    ],
)
def test_paths(parent: str, is_systemd: bool, expected: str) -> None:
    assert cgroup_path(parent, "c1", is_systemd=is_systemd) == expected


def test_a_parent_of_the_other_driver_is_refused() -> None:
    with pytest.raises(InvalidError, match="no systemd slice"):
        cgroup_path("/kubepods/podu", "c1", is_systemd=True)


def test_a_parent_cannot_climb() -> None:
    with pytest.raises(InvalidError, match=r"has '\.\.'"):
        cgroup_path("/kubepods/../..", "c1", is_systemd=False)
