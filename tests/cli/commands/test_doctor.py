"""`moor doctor`: what it looks at, what it prints and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cli.commands.doctor import as_in_force
from moorage.cli.handlers import HandlersInUse
from moorage.cluster.host import Inventory
from moorage.cluster.host.findings import Finding
from moorage.cluster.layout import Layout
from moorage.engine.handlers import Handler
from moorage.engine.requirements import HANDLER_DIRECTORY
from tests.cli.moor import FakeFactory, cluster
from tests.cluster.hosts import a_host

RUNC = Handler(
    handler="runc", runtime="runc", available=True, path="/usr/bin/runc", version="1.2.3"
)
GVISOR = Handler(
    handler="gvisor", runtime="runsc", available=True, path="/usr/bin/runsc", version="1",
    defect="ls fails", defect_remedy="another version",
)  # fmt: skip


class Machine(FakeFactory):
    """What the command finds, and how it asked."""

    def __init__(self) -> None:
        super().__init__()
        self.host = a_host()
        self.in_use: tuple[Handler, ...] = ()
        self.asked: list[object] = []

    async def inspect_machine(
        self, layout: Layout, **options: Any
    ) -> tuple[Inventory, tuple[Handler, ...]]:
        if options["is_installing"]:
            options["report"]("installing conmon")
        self.asked.append((layout.root, options["is_installing"]))
        return self.host, (RUNC, GVISOR)

    async def handlers_in_use(self, _layout: Layout, handlers: object) -> HandlersInUse:
        self.asked.append(handlers)
        return HandlersInUse(self.in_use)

    def rows(self, *options: object, status: int = 0) -> dict[str, dict[str, Any]]:
        answer = self.moor("doctor", "-o", "json", *options)
        assert answer.status == status
        return {row["subject"]: row for row in json.loads(answer.out)}


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_machine_that_can_run_pods_is_status_0(machine: Machine, tmp_path: Path) -> None:
    rows = machine.rows("--data-dir", tmp_path)
    assert rows["user"]["state"] == "ok"
    assert "ls fails" in str(rows)
    assert machine.asked == [(tmp_path, False), (RUNC, GVISOR)]
    assert machine.rows("--install", "--data-dir", tmp_path)
    assert machine.asked[2] == (tmp_path, True)


def test_problem_exits_with_status_4_and_prints_its_remedy_below(
    machine: Machine, tmp_path: Path
) -> None:
    machine.host = a_host(is_root=False)
    answer = machine.moor("doctor", "--data-dir", tmp_path)
    assert answer.status == 4
    lines = answer.out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("user "))
    assert "problem" in lines[at]
    assert lines[at + 1] == "    → run as root: sudo moor …"
    assert lines[0].split() == ["SUBJECT", "STATE", "MEANING"]
    assert not any(line.startswith("    →") for line in lines[at + 2 : at + 3])


@pytest.mark.parametrize(
    ("own", "has_defect"),
    [
        ({"path": "/opt/runsc", "available": True}, False),
        ({"path": "/opt/runsc", "available": False}, True),
        # Of the same program probes found none.
        ({"path": GVISOR.path, "available": True}, False),
        ({"path": GVISOR.path, "available": True, "defect": "also bad"}, False),
        ({"path": "/opt/runsc", "available": True, "defect": "also bad"}, False),
    ],
)
def test_a_defect_is_that_of_the_handler_in_use(
    machine: Machine, tmp_path: Path, own: dict[str, Any], has_defect: bool
) -> None:
    machine.in_use = (Handler(handler="gvisor", runtime="runsc", version="2", **own),)
    rows = str(machine.rows("--data-dir", tmp_path))
    assert ("ls fails" in rows) == has_defect
    assert ("also bad" in rows) == ("defect" in own)


def test_what_a_handler_file_names_counts_for_its_handler_alone() -> None:
    own = Handler(
        handler="gvisor", runtime="runsc", available=True, path="/opt/runsc", version="2",
        defect="d", defect_remedy="r",
    )  # fmt: skip
    changed = as_in_force(GVISOR, own)
    assert changed == msgspec.structs.replace(
        GVISOR, path="/opt/runsc", version="2", defect="d", defect_remedy="r"
    )
    assert as_in_force(RUNC, None) is RUNC


def test_another_engines_handlers_are_not_asked_for(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path, cri="unix:///run/x.sock")
    assert "ls fails" in str(machine.rows("--data-dir", layout.root))
    assert machine.asked == [(layout.root, False)]


def test_the_store_is_read_when_asked_for(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    assert "store" not in machine.rows("--data-dir", layout.root)
    assert machine.rows("--deep", "--data-dir", layout.root)["store"]["state"] == "ok"
    layout.store_mark.touch()
    rows = machine.rows("--deep", "--data-dir", layout.root, status=4)
    assert rows["store"]["meaning"] == f"{layout.database} is gone"


def test_both_directories_of_handler_files_are_looked_at(tmp_path: Path) -> None:
    passed: list[object] = []

    class Examined(Machine):
        def examine(self, *given: object) -> tuple[Finding, ...]:
            passed.extend(given)
            return ()

    machine = Examined()
    layout = cluster(tmp_path)
    assert machine.moor("doctor", "--data-dir", layout.root).status == 0
    assert passed == [
        machine.host, (RUNC, GVISOR), (HANDLER_DIRECTORY, layout.engine / "handlers.d"),
    ]  # fmt: skip
