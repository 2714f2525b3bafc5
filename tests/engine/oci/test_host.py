from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.oci import look_at_host
from moorage.engine.oci.context import has_controller
from moorage.linux.cgroups import Cgroups, Layout
from tests.linux.hosts import linux_host


@pytest.mark.parametrize(
    ("layout", "expected"), [(Layout.V1, False), (Layout.HYBRID, False), (Layout.V2, True)]
)
def test_a_controller_counts_where_runtimes_look(layout: Layout, expected: bool) -> None:
    cgroups = Cgroups(layout, {"memory": Path("/m")}, Path("/u"), ("hugetlb",))
    assert has_controller(cgroups, "hugetlb") is expected


def test_this_machine_is_described() -> None:
    facts = look_at_host()
    assert facts.kernel > (3, 0)
    assert facts.own_capabilities <= facts.known_capabilities
    assert facts.machine


def test_facts_are_derived_from_the_host() -> None:
    cgroups = Cgroups(Layout.V2, {}, Path("/u"), ("hugetlb",))
    host = linux_host(cgroups=cgroups, has_app_armor=True, oom_score_floor=-5)
    facts = look_at_host(host)
    assert (facts.kernel, facts.machine) == ((6, 12), "x86_64")
    assert (facts.is_cgroup_v2, facts.has_hugetlb, facts.has_app_armor) == (True, True, True)
    assert (facts.has_swap_accounting, facts.has_selinux, facts.has_seccomp) == (True, False, True)
    assert facts.oom_score_floor == -5
    assert facts.own_capabilities == host.capabilities
    assert facts.known_capabilities == host.known_capabilities
