"""Data of a runtime agent, removed before the agent goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from moorage.attach.processes import data_removal
from moorage.attach.processes.data_removal import RemovalOptions
from moorage.cluster.errors import ClusterError
from moorage.cluster.layout import Layout
from moorage.runtimes.installing.journal import MadeDirectories
from tests.clocks import FakeClock
from tests.ports import free_port


def _data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for path in ("probes/results.json", "runtimes/.installations/i.json", "node/store"):
        (data / path).parent.mkdir(parents=True)
        (data / path).write_text("{}")
    return data


def _options(data: Path, port: int, *, enters_host: bool = True) -> RemovalOptions:
    return RemovalOptions(data_dir=data, cri="", enters_host=enters_host, health_port=port)


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_the_directory_goes_and_the_agent_waits(tmp_path: Path) -> None:
    data, ready = _data(tmp_path), asyncio.Event()
    port = free_port()
    running = asyncio.create_task(data_removal.run(_options(data, port), ready.set))
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
    assert data_removal.remove_data(tmp_path / "absent") == []


def test_what_no_agent_made_stays(tmp_path: Path) -> None:
    data = _data(tmp_path)
    (data / "accounts.db").touch()
    assert data_removal.remove_data(data) == [data / "accounts.db"]
    assert _names(data) == ["accounts.db"]


def test_the_directory_of_a_cluster_stays_whole(tmp_path: Path) -> None:
    data = _data(tmp_path)
    Layout(data).settings.write_text("{}")
    before = sorted(data.rglob("*"))
    with pytest.raises(ClusterError, match="is the directory of a cluster, not of a runtime agent"):
        data_removal.remove_data(data)
    assert sorted(data.rglob("*")) == before


async def test_a_link_in_the_directorys_place_ends_the_removal(tmp_path: Path) -> None:
    data, ready, link = _data(tmp_path), asyncio.Event(), tmp_path / "link"
    link.symlink_to(data)
    running = asyncio.create_task(data_removal.run(_options(link, free_port()), ready.set))
    async with asyncio.timeout(10):
        await ready.wait()
    running.cancel()
    assert link.is_symlink()
    assert _names(data) == []


async def test_directories_that_were_made_for_runtimes_go_if_they_are_empty(tmp_path: Path) -> None:
    data, ready = _data(tmp_path), asyncio.Event()
    made = [tmp_path / "crio", tmp_path / "containerd", tmp_path / "containerd" / "moorage.d"]
    for path in made:
        path.mkdir()
    (tmp_path / "crio" / "of-a-user").touch()
    MadeDirectories(data / "runtimes").note(made)
    running = asyncio.create_task(data_removal.run(_options(data, free_port()), ready.set))
    async with asyncio.timeout(10):
        await ready.wait()
    running.cancel()
    assert _names(tmp_path) == ["crio"]


async def test_what_cannot_be_removed_is_tried_again_and_not_counted_as_removed(
    tmp_path: Path,
) -> None:
    data, ready, clock = tmp_path / "data", asyncio.Event(), FakeClock()
    data.touch()
    running = asyncio.create_task(data_removal.run(_options(data, free_port()), ready.set, clock))
    async with asyncio.timeout(10):
        while clock.next_s is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not ready.is_set()
        data.unlink()
        clock.advance(5)
        await ready.wait()
    running.cancel()


async def test_an_agent_without_capabilities_leaves_its_empty_directory(tmp_path: Path) -> None:
    data, ready = _data(tmp_path), asyncio.Event()
    options = _options(data, free_port(), enters_host=False)
    running = asyncio.create_task(data_removal.run(options, ready.set))
    async with asyncio.timeout(10):
        await ready.wait()
    running.cancel()
    assert _names(data) == []
