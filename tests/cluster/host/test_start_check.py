"""The host before a start: inspected, with missing packages installed, and judged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.host import Inventory, Tool
from moorage.cluster.host import start_check as machine
from moorage.cluster.host.packages import InstallError
from moorage.cluster.layout import Layout
from moorage.engine.handlers import Handler
from tests.cluster.hosts import a_host, tools_without

RUNC = Handler(handler="runc", runtime="runc", path="/r", version="1.3", available=True)


class Machine:
    """Lacks conmon until it is installed."""

    def __init__(self) -> None:
        self.host = a_host(tools=tools_without("conmon"), path="before")
        self.installed: list[str] = []
        self.found: list[object] = []
        self.error: InstallError | None = None
        self.handlers: object = "handlers"

    async def gather(self, root: Path) -> Inventory:
        assert root == Path("/data")
        return self.host

    async def install(self, names: Iterable[str], host: Inventory) -> None:
        assert host is self.host
        if self.error is not None:
            raise self.error
        self.installed.extend(names)
        self.host = a_host(path="after")

    async def discover(self, *arguments: object, path: str) -> Any:
        self.found = [*arguments, path]
        return self.handlers

    async def inspect(self, layout: Layout, **options: Any) -> tuple[Inventory, Any]:
        return await machine.inspect_machine(
            layout, gather=self.gather, install=self.install, discover=self.discover, **options
        )

    async def require(self, **options: Any) -> object:
        layout = Layout(Path("/data"))
        return await machine.require_machine(layout, inspect=self.inspect, **options)


@pytest.fixture
def here() -> Machine:
    return Machine()


async def test_it_is_looked_at_and_left_alone(here: Machine) -> None:
    seen: Any = await here.inspect(Layout(Path("/data")))
    assert seen == (here.host, "handlers")
    assert here.installed == []
    assert here.found == [here.host.machine, "before"]


async def test_what_is_missing_is_installed_and_then_found(here: Machine) -> None:
    layout, reports = Layout(Path("/data")), list[str]()
    host, _ = await here.inspect(layout, is_installing=True, report=reports.append)
    assert host.path == "after"
    assert here.found[-1] == "after"
    assert here.installed == ["conmon"]
    assert reports == ["installing conmon"]
    await here.inspect(layout, is_installing=True, report=reports.append)
    assert here.installed == ["conmon"]
    assert reports == ["installing conmon"]


async def test_failed_installation_is_an_error(here: Machine) -> None:
    here.error = InstallError("no apt-get")
    with pytest.raises(CannotRunPodsError, match="no apt-get"):
        await here.inspect(Layout(Path("/data")), is_installing=True)
    assert here.found == []


async def test_machine_that_lacks_something_is_refused_with_each_problem(here: Machine) -> None:
    here.host = a_host(tools=tools_without("conmon", "busybox"), is_root=False, path="before")
    here.handlers = (RUNC,)
    with pytest.raises(CannotRunPodsError) as refused:
        await here.require()
    # Warnings, such as the missing busybox, are not among them.
    assert str(refused.value) == (
        "this machine cannot run pods:\n"
        "  user: not root: a control plane works, pods cannot run → run as root: sudo moor …\n"
        "  engine: conmon not found: no engine of our own; a running one can be given with --cri"
        " → apt-get install conmon\n"
        "`moor up --install` installs missing packages on Debian; "
        "`moor up --no-node` starts the control plane alone, which needs nothing of this"
    )
    assert here.installed == []


async def test_problem_without_remedy_is_shown_alone(here: Machine) -> None:
    broken = {"conmon": Tool(Path("/c"), "", "Segmentation fault")}
    here.host = a_host(tools=tools_without() | broken)
    here.handlers = (RUNC,)
    with pytest.raises(CannotRunPodsError, match="version: Segmentation fault\n`moor up"):
        await here.require()


async def test_machine_is_accepted_after_the_installation(here: Machine) -> None:
    here.handlers = (RUNC,)
    reports = list[str]()
    accepted = await here.require(is_installing=True, report=reports.append)
    assert accepted == (RUNC,)
    assert (here.installed, reports) == (["conmon"], ["installing conmon"])
