"""Data of a runtime agent, removed before the agent goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from moorage.cluster.runtimes.host_access import DIRECT
from moorage.cluster.standalone import data_removal
from tests.ports import free_port


def _data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for path in ("probes/results.json", "runtimes/.installations/i.json", "node/store"):
        (data / path).parent.mkdir(parents=True)
        (data / path).write_text("{}")
    return data


async def test_the_directory_goes_and_the_agent_waits(tmp_path: Path) -> None:
    data, ready = _data(tmp_path), asyncio.Event()
    port = free_port()
    running = asyncio.create_task(data_removal.run(data, port, ready.set))
    async with asyncio.timeout(10), aiohttp.ClientSession() as session:
        await ready.wait()
        assert not data.exists()
        # The port is opened a moment later, as for a kubelet's probe.
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    assert answer.status == 200
                    break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()


def test_runtimes_that_are_installed_stay(tmp_path: Path) -> None:
    data = _data(tmp_path)
    program = data / "runtimes" / "kata" / "0123456789ab" / "kata"
    program.parent.mkdir(parents=True)
    program.touch()
    assert data_removal.remove_data(data) == [data / "runtimes"]
    assert {path.name for path in data.iterdir()} == {"runtimes"}
    assert program.exists()
    # Again, as after a kill.
    assert data_removal.remove_data(data) == [data / "runtimes"]


async def test_a_directory_that_is_absent_or_in_use_is_no_error(tmp_path: Path) -> None:
    assert data_removal.remove_data(tmp_path / "absent") == []
    await data_removal.remove_directory(tmp_path / "absent", DIRECT)
    (tmp_path / "file").touch()
    await data_removal.remove_directory(tmp_path, DIRECT)
    assert (tmp_path / "file").exists()
