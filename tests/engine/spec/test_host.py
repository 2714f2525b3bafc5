from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.spec import look_at_host
from moorage.engine.spec.host import (
    LOWEST_OOM_SCORE,
    has_controller,
    kernel_version,
    known_capabilities,
    oom_score_floor,
)
from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.18.5", (6, 18)), ("5.10.0-28-amd64", (5, 10)), ("4.4", (4, 4)), ("next", (0, 0))],
)
def test_kernels(release: str, expected: tuple[int, int]) -> None:
    assert kernel_version(release) == expected


@pytest.mark.parametrize(
    ("own", "score", "expected"),
    [
        (["CAP_SYS_RESOURCE"], "0", LOWEST_OOM_SCORE),
        ([], "0", 0),
        ([], "-999", -999),
        ([], "", LOWEST_OOM_SCORE),
    ],
)
def test_the_lowest_score_is_the_engines_own_unless_it_may_lower_it(
    own: list[str], score: str, expected: int
) -> None:
    assert oom_score_floor(own, score) == expected


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
