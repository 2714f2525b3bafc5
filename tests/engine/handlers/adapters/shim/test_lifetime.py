"""A shim adapter's own parts: what they are made of, and that they are closed."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Task
from moorage.engine.handlers.adapters.shim import adapter as module
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.definition import HandlerDefinition, ShimOptions, parse_definition
from moorage.engine.handlers.search_path import search_path


class FakePart:
    """The connections or the event socket of an adapter."""

    is_closed = False

    def close(self) -> Any:
        self.is_closed = True
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def a_definition(directory: Path) -> HandlerDefinition:
    text = 'adapter = "shim"\nbinary = "x"\n[options]\nruntime_type = "io.x.v2"\n'
    return parse_definition(directory / "own.toml", text.encode())


def an_adapter(directory: Path) -> ShimAdapter:
    definition = a_definition(directory)
    assert isinstance(definition.options, ShimOptions)
    return ShimAdapter.of(definition, definition.options, Path("/bin/shim"), directory)


async def test_an_adapter_is_made_of_its_definition(tmp_path: Path) -> None:
    adapter = an_adapter(tmp_path)
    assert adapter.program.binary == Path("/bin/shim")
    assert adapter.program.events == tmp_path / "own.events"
    assert adapter.options.root == tmp_path / "own.state"
    assert adapter.program.search_path == adapter.options.search_path == search_path()


async def test_connections_and_events_are_closed(tmp_path: Path) -> None:
    adapter, connections, events = an_adapter(tmp_path), FakePart(), FakePart()
    adapter.shims, adapter.events = connections, events  # type: ignore[assignment]
    async with adapter:
        pass
    assert (connections.is_closed, events.is_closed) == (True, True)
    assert adapter.events is None


async def test_output_that_cannot_be_opened_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeDirectory:
        path = tmp_path / "task"

        def __init__(self, _bundle: Path) -> None:
            pass

        def record(self) -> object:
            return object()

    async def listen(_: ShimAdapter) -> None:
        return None

    def no_room(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(module, "TaskDirectory", FakeDirectory)
    monkeypatch.setattr(module, "pipes_in", lambda _: {})
    monkeypatch.setattr(ShimAdapter, "_listen", listen)
    monkeypatch.setattr(ShimAdapter, "_output", no_room)
    task = Task(id="t", bundle=tmp_path, sandbox_id="s", log=None)
    async with an_adapter(tmp_path) as adapter:
        with pytest.raises(AdapterError) as failed:
            await adapter._known(task)
    assert str(failed.value) == f"{tmp_path}/task: Too many open files"
