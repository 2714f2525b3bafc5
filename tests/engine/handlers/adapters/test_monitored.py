"""A process that a runtime has left running: what happens when it is left."""

from __future__ import annotations

from typing import Any

from moorage.engine.handlers.adapters.monitored import StartedProcess


class FakeFiles:
    is_removed = False

    def pid(self) -> int:
        return 4711

    def remove(self) -> None:
        self.is_removed = True


class FakeStreams:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FakeReaper:
    def watch(self, pid: int) -> Any:
        raise ProcessLookupError(f"process {pid} is not our child")


class Ended(StartedProcess):
    """One whose signals go nowhere."""

    async def kill(self) -> None:
        return None


async def test_leaving_it_closes_its_streams_and_removes_its_files() -> None:
    files, streams = FakeFiles(), FakeStreams()
    async with Ended(files, streams, FakeReaper()):  # type: ignore[arg-type]
        assert not streams.is_closed
    assert (streams.is_closed, files.is_removed) == (True, True)
