from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.oci import host, look_at_host
from moorage.engine.oci.host import has_controller, known_capabilities
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
    found = look_at_host()
    assert found.kernel > (3, 0)
    assert found.own_capabilities <= found.known_capabilities
    assert found.machine


def test_each_fact_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def text(path: str) -> str:
        asked.append(path)
        return {"/sys/module/apparmor/parameters/enabled": "Y"}.get(path, "5")

    cgroups = Cgroups(Layout.V2, {}, tmp_path, ("hugetlb",))
    monkeypatch.setattr(host, "_text", text)
    monkeypatch.setattr(host, "current_cgroups", lambda: cgroups)
    found = look_at_host()
    assert asked == ["/sys/module/apparmor/parameters/enabled", "/proc/sys/kernel/cap_last_cap"]
    assert (found.has_app_armor, found.is_cgroup_v2, found.has_hugetlb) == (True, True, True)
    assert found.known_capabilities == frozenset(NAMES[:6])
    assert not found.has_swap_accounting
    assert found.has_seccomp == ("\nSeccomp:" in Path("/proc/self/status").read_text())
    (tmp_path / "a").mkdir()
    (tmp_path / "a/memory.swap.max").touch()
    assert look_at_host().has_swap_accounting
    monkeypatch.setattr(host, "_text", lambda _: "N")
    assert not look_at_host().has_app_armor


@pytest.mark.parametrize("layout", [Layout.V1, Layout.HYBRID])
def test_swap_is_accounted_where_the_file_is(tmp_path: Path, layout: Layout) -> None:
    (tmp_path / "u/a").mkdir(parents=True)
    (tmp_path / "u/a/memory.swap.max").touch()
    (tmp_path / "memory").mkdir()
    cgroups = Cgroups(layout, {"memory": tmp_path / "memory"}, tmp_path / "u")
    assert not host._has_swap_accounting(cgroups)
    (tmp_path / "memory/memory.memsw.limit_in_bytes").touch()
    assert host._has_swap_accounting(cgroups)
    assert not host._has_swap_accounting(Cgroups(layout, {}, tmp_path / "u"))


def test_a_file_that_is_not_there_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(" x\n")
    assert (host._text(str(tmp_path / "file")), host._text(str(tmp_path / "none"))) == ("x", "")
