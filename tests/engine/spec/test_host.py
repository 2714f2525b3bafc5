from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.spec import look_at_host
from moorage.engine.spec.host import has_controller, known_capabilities
from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout


def test_an_older_kernel_knows_fewer_capabilities() -> None:
    assert known_capabilities("37") == frozenset(NAMES[:38])
    assert known_capabilities("") == frozenset(NAMES)


@pytest.mark.parametrize(
    ("layout", "expected"), [(Layout.V1, False), (Layout.HYBRID, False), (Layout.V2, True)]
)
def test_a_controller_counts_where_runtimes_look(layout: Layout, expected: bool) -> None:
    cgroups = Cgroups(layout, {"memory": Path("/m")}, Path("/u"), ("hugetlb",))
    assert has_controller(cgroups, "hugetlb") is expected


def test_this_machine_is_described() -> None:
    host = look_at_host()
    assert host.kernel > (3, 0)
    assert host.own_capabilities <= host.known_capabilities
    assert host.machine
