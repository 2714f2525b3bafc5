from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.cgroups.usage import process_count


@pytest.mark.parametrize(
    "cgroups",
    [
        Cgroups(Layout.V1, {"pids": Path("pids")}),
        Cgroups(Layout.HYBRID, {"pids": Path("pids")}, unified=Path("other")),
        Cgroups(Layout.HYBRID, {}, unified=Path("pids"), v2=("pids",)),
        Cgroups(Layout.V2, unified=Path("pids"), v2=("pids",)),
    ],
)
def test_processes_are_counted_where_the_controller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cgroups: Cgroups
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "pids" / "a"
    directory.mkdir(parents=True)
    (directory / "pids.current").write_text("7\n")
    assert process_count(cgroups, "/a") == 7
    assert process_count(cgroups, "/gone") is None


def test_without_the_controller_nothing_is_counted() -> None:
    assert process_count(Cgroups(Layout.V1), "/a") is None
