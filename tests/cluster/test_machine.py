"""The host before a start: inspected, with missing packages installed, and judged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster import machine
from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.host import Inventory
from moorage.cluster.layout import Layout
from moorage.cluster.packages import InstallError
from tests.cluster.hosts import a_host, tools_without


class Machine:
    """Lacks conmon until it is installed."""

    def __init__(self) -> None:
        self.host = a_host(tools=tools_without("conmon"), path="before")
        self.installed: list[str] = []
        self.found: list[object] = []
        self.error: InstallError | None = None

    async def gather(self, root: Path) -> Inventory:
        assert root == Path("/data")
        return self.host

    async def install(self, names: Iterable[str], host: Inventory) -> None:
        assert host is self.host
        if self.error is not None:
            raise self.error
        self.installed.extend(names)
        self.host = a_host(path="after")

    async def discover(self, *arguments: object, path: str) -> str:
        self.found = [*arguments, path]
        return "handlers"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Machine:
    here = Machine()
    monkeypatch.setattr(machine, "gather", here.gather)
    monkeypatch.setattr(machine, "install_packages", here.install)
    monkeypatch.setattr(machine, "discover", here.discover)
    return here


async def test_it_is_looked_at_and_left_alone(here: Machine) -> None:
    seen: Any = await machine.inspect_machine(Layout(Path("/data")))
    assert seen == (here.host, "handlers")
    assert here.installed == []
    assert here.found == [here.host.machine, "before"]


async def test_what_is_missing_is_installed_and_then_found(here: Machine) -> None:
    layout, reports = Layout(Path("/data")), list[str]()
    host, _ = await machine.inspect_machine(layout, is_installing=True, report=reports.append)
    assert host.path == "after"
    assert here.found[-1] == "after"
    assert here.installed == ["conmon"]
    assert reports == ["installing conmon"]
    await machine.inspect_machine(layout, is_installing=True, report=reports.append)
    assert here.installed == ["conmon"]
    assert reports == ["installing conmon"]


async def test_failed_installation_is_an_error(here: Machine) -> None:
    here.error = InstallError("no apt-get")
    with pytest.raises(CannotRunPodsError, match="no apt-get"):
        await machine.inspect_machine(Layout(Path("/data")), is_installing=True)
    assert here.found == []
