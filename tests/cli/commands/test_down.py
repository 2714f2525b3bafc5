"""`moor down`: what it ends, what it keeps and what it says."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from moorage.cluster.cluster import ClusterActions
from moorage.cluster.errors import LeftoverError, StopError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.linux.command import CommandError
from tests.cli.moor import Answer, FakeFactory, cluster, locked


class Machine(FakeFactory, ClusterActions):
    """What was taken off it, and what fails."""

    def __init__(self) -> None:
        super().__init__(actions=self)
        self.levels: list[str] = []
        self.does_not_stop = False
        self.cleared: list[tuple[Path, str, bool]] = []
        self.error: Exception | None = None

    def configure_logs(self, level: str) -> None:
        self.levels.append(level)

    async def stop_supervisor(self, layout: Layout) -> bool:
        if self.does_not_stop:
            raise StopError("does not end")
        return await super().stop_supervisor(layout)

    async def clear_host(self, layout: Layout, settings: Settings, *, abandons_pods: bool) -> None:
        with open(layout.change_lock) as lock, suppress(BlockingIOError):  # noqa: ASYNC230
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise AssertionError("not locked")
        if self.error is not None:
            raise self.error
        self.cleared.append((layout.root, settings.cluster_id, abandons_pods))


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    assert set(machine.levels) <= {"warning"}


def test_a_running_cluster_ends_and_then_its_pods(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        assert machine.moor("down", "--data-dir", layout.root) == Answer(0, "stopped\n", "")
    assert machine.cleared == [(layout.root, "0a1b2c3d", False)]
    answer = machine.moor("down", "--abandon-pods", "--data-dir", layout.root)
    assert answer == Answer(0, "was not running\n", "")
    assert machine.cleared[1:] == [(layout.root, "0a1b2c3d", True)]
    assert layout.settings.exists()


def test_pods_can_be_kept(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        assert machine.moor("down", "--keep-pods", "--data-dir", layout.root).out == "stopped\n"
    assert machine.cleared == []


def test_data_are_deleted_when_asked_for(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    answer = machine.moor("down", "--delete-data", "--data-dir", layout.root)
    assert answer == Answer(0, f"was not running\ndeleted {layout.root}\n", "")
    assert len(machine.cleared) == 1
    assert not layout.root.exists()


@pytest.mark.parametrize("other", ["--delete-data", "--abandon-pods"])
def test_pods_that_are_kept_exclude_what_ends_them(
    machine: Machine, tmp_path: Path, other: str
) -> None:
    layout = cluster(tmp_path)
    answer = machine.moor("down", "--keep-pods", other, "--data-dir", layout.root)
    assert answer.status == 2
    assert f"--keep-pods and {other} exclude each other" in answer.err
    assert layout.settings.exists()
    assert machine.cleared == []


@pytest.mark.parametrize("error", [LeftoverError("why"), CommandError(["ip"], "why")])
def test_failed_cleanup_is_reported_and_the_data_stay(
    machine: Machine, tmp_path: Path, error: Exception
) -> None:
    layout = cluster(tmp_path)
    machine.error = error
    answer = machine.moor("down", "--delete-data", "--data-dir", layout.root)
    assert (answer.status, answer.out) == (1, "")
    assert "why" in answer.err
    assert layout.settings.exists()


def test_a_supervisor_that_does_not_end_keeps_its_pods(machine: Machine, tmp_path: Path) -> None:
    machine.does_not_stop = True
    answer = machine.moor("down", "--data-dir", cluster(tmp_path).root)
    assert (answer.status, answer.err) == (1, "moor: does not end\n")
    assert machine.cleared == []
