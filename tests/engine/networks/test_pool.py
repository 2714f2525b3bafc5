"""Networks made in advance: when, for whom, and what becomes of them at an engine's end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moorage.api.logs import LineFormatter
from moorage.engine.networks import CniError, NetworkPool, Plugins, RuntimeConf, read_conflist
from moorage.linux import pinned
from moorage.linux.idmap import IdMappings, IdRange
from moorage.linux.mounts import current_mounts, mounts_below
from tests.clocks import FakeClock, settle
from tests.engine.handlers.programs import program
from tests.engine.images.conftest import place

__all__ = ["place"]

_ANSWER = json.dumps({"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]})
_PLUGIN = f"""
here=$(dirname "$0")
echo "$CNI_COMMAND $CNI_CONTAINERID ${{CNI_NETNS:-none}}" >>"$here/calls"
cat >/dev/null
[ ! -e "$here/fails" ] || {{ echo '{{"code": 7, "msg": "no room"}}'; exit 1; }}
[ "$CNI_COMMAND" = DEL ] || echo '{_ANSWER}'
"""


@dataclass
class Bench:
    """A network of one plugin, and pools over it."""

    root: Path
    clock: FakeClock = field(default_factory=FakeClock)
    lull: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def directory(self) -> Path:
        return self.root / "n"

    def configure(self, kind: str = "bridge") -> None:
        (self.root / "net.d").mkdir(exist_ok=True)
        network = {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": kind}]}
        (self.root / "net.d/n.conflist").write_text(json.dumps(network))
        program(self.root / "cni", kind, _PLUGIN)

    def fail(self, *, does_fail: bool = True) -> None:
        mark = self.root / "cni/fails"
        mark.touch() if does_fail else mark.unlink()

    def calls(self) -> list[tuple[str, ...]]:
        file = self.root / "cni/calls"
        return [tuple(line.split()) for line in file.read_text().splitlines()]

    def spares(self) -> list[str]:
        names = sorted(path.name for path in self.directory.iterdir())
        return [name for name in names if name.startswith("spare-")]

    def _ready(self) -> list[str]:
        return [
            name for name in self.spares() if (self.directory / name / "attachment.json").exists()
        ]

    def pool(self, size: int) -> NetworkPool:
        return NetworkPool(
            self.directory,
            Plugins((self.root / "cni",)),
            lambda: read_conflist(self.root / "net.d"),
            self.clock,
            size=size,
            wait_idle=self._wait,
        )

    async def _wait(self) -> None:
        await self.lull.wait()

    @asynccontextmanager
    async def running(self, size: int) -> AsyncIterator[NetworkPool]:
        """A pool that makes networks in advance while the block lasts."""
        pool = self.pool(size)
        work = asyncio.create_task(pool.run())
        try:
            await settle()
            yield pool
        finally:
            work.cancel()
            await asyncio.wait((work,))

    async def has_spares(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self._ready()) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await settle()
        assert len(self.spares()) == count

    def is_clean(self) -> bool:
        return not list(self.directory.iterdir()) and not mounts_below(
            self.directory, current_mounts()
        )


@pytest.fixture
def bench(place: Path) -> Bench:
    made = Bench(place)
    made.directory.mkdir()
    made.configure()
    return made


async def take(pool: NetworkPool, name: str, **fields: Any) -> tuple[Path, Any]:
    return await pool.acquire(
        name, f"host-{name}", {}, RuntimeConf(container_id=name, netns=Path(), **fields)
    )


async def test_networks_are_made_in_a_lull_and_taken_before_others(bench: Bench) -> None:
    async with bench.running(2) as pool:
        assert not bench.spares()
        bench.lull.set()
        await bench.has_spares(2)
        ready = [name for _, name, _ in bench.calls()]
        bench.lull.clear()
        directory, attachment = await take(pool, "s1")
        assert directory == bench.directory / "s1"
        assert attachment.addresses == ("10.9.0.2",)
        assert len(bench.calls()) == 2
        assert bench.spares() == sorted(ready[1:])
        assert all(pinned.is_pinned(directory / kind) for kind in ("net", "ipc", "uts"))
        # Plugins receive the name it was made under.
        await pool.release(directory, attachment)
        assert bench.calls()[-1][:2] == ("DEL", ready[0])
        assert not directory.exists()
        # The one that was taken is made up for in the next lull.
        bench.lull.set()
        await bench.has_spares(2)
        await pool.drain()
    assert bench.is_clean()


@pytest.mark.parametrize("is_mapped", [True, False])
async def test_what_a_pod_has_of_its_own_is_made_for_it(bench: Bench, is_mapped: bool) -> None:
    bench.lull.set()
    async with bench.running(1) as pool:
        await bench.has_spares(1)
        spares = bench.spares()
        if is_mapped:
            ranges = (IdRange(0, 200_000, 65_536),)
            conf = RuntimeConf(container_id="s1", netns=Path())
            directory, attachment = await pool.acquire(
                "s1", "h", {}, conf, IdMappings(ranges, ranges)
            )
            assert pinned.is_pinned(directory / "user")
        else:
            arguments = {"portMappings": [{"hostPort": 80}]}
            directory, attachment = await take(pool, "s1", capability_args=arguments)
        assert ("ADD", "s1", str(directory / "net")) in bench.calls()
        assert bench.spares() == spares
        await pool.release(directory, attachment)
        await pool.drain()
    assert bench.is_clean()


async def test_no_network_is_made_in_advance_where_a_plugin_looks_at_the_pod(bench: Bench) -> None:
    bench.configure("calico")
    bench.lull.set()
    pool = bench.pool(1)
    await asyncio.wait_for(pool.run(), 10)
    assert bench.is_clean()


async def test_a_failure_is_tried_again_later(bench: Bench) -> None:
    bench.fail()
    bench.lull.set()
    async with bench.running(1) as pool:
        async with asyncio.timeout(20):
            while bench.clock.next_s is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert bench.is_clean()
        bench.fail(does_fail=False)
        bench.clock.advance(bench.clock.next_s)
        await bench.has_spares(1)
        await pool.drain()
    assert bench.is_clean()


async def test_a_failure_that_goes_on_is_logged_once_and_after_an_hour(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.fail()
    bench.lull.set()

    async def pausing() -> float:
        async with asyncio.timeout(20):
            while (pause_s := bench.clock.next_s) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return pause_s

    async with bench.running(1) as pool:
        pauses = []
        for _ in range(6):
            pauses.append(await pausing())
            bench.clock.advance(pauses[-1])
            await settle()
        assert pauses == [5, 10, 20, 40, 60, 60]
        await pausing()
        assert [record.message for record in caplog.records] == ["warm network creation failed"]
        assert "no room" in LineFormatter().format(caplog.records[0])
        bench.clock.advance(3600)
        await settle()
        await pausing()
        assert len(caplog.records) == 2
        bench.fail(does_fail=False)
        bench.clock.advance(60)
        await bench.has_spares(1)
        assert caplog.records[-1].message == "warm networks are created again"
        await pool.drain()


async def test_of_a_network_that_fails_nothing_stays(bench: Bench) -> None:
    bench.fail()
    with pytest.raises(CniError, match="no room"):
        await take(bench.pool(0), "s1")
    assert bench.is_clean()


async def test_spare_network_that_cannot_be_configured_is_released(bench: Bench) -> None:
    bench.lull.set()
    async with bench.running(1) as pool:
        await bench.has_spares(1)
        bench.lull.clear()
        with pytest.raises(OSError, match="no_such_sysctl"):
            await pool.acquire(
                "s1",
                "h",
                {Path("/proc/sys/no_such_sysctl"): "1"},
                RuntimeConf(container_id="s1", netns=Path()),
            )
        assert bench.calls()[-1][0] == "DEL"
        assert bench.is_clean()


async def test_the_next_engine_takes_spares_and_gives_back_the_rest(bench: Bench) -> None:
    bench.lull.set()
    async with bench.running(1) as pool:
        await bench.has_spares(1)
        bench.lull.clear()
        (spare,) = bench.spares()
        await pool.acquire("kept", "h", {}, RuntimeConf(container_id="kept", netns=Path()))
        known = await take(pool, "known")
        await take(pool, "unknown")
        bench.lull.set()
        await bench.has_spares(1)
    # One was being made when its engine ended.
    half = bench.directory / "spare-half"
    pinned.create(half, ("net",))
    (ready,) = [name for name in bench.spares() if name != half.name]
    again = bench.pool(1)
    await again.recover(frozenset({"kept", "known"}))
    assert {path.name for path in bench.directory.iterdir()} == {"kept", "known", ready}
    undone = [call[1] for call in bench.calls() if call[0] == "DEL"]
    assert sorted(undone) == ["spare-half", "unknown"]
    directory, attachment = await take(again, "s2")
    assert [call[1] for call in bench.calls() if call[0] == "ADD"].count("s2") == 0
    await again.release(directory, attachment)
    await again.release(*known)
    await again.recover(frozenset())
    assert bench.is_clean()
    assert bench.calls()[-1][:2] == ("DEL", spare)
    bench.directory.rmdir()
    await again.recover(frozenset())


async def test_failed_release_does_not_block_others(bench: Bench) -> None:
    bench.lull.set()
    async with bench.running(2) as pool:
        await bench.has_spares(2)
        bench.fail()
        await pool.drain()
        assert len(bench.spares()) == 2
    (bench.directory / "half").mkdir()
    await bench.pool(0).recover(frozenset())
    bench.fail(does_fail=False)
    last = bench.pool(0)
    await last.recover(frozenset())
    await last.drain()
    assert bench.is_clean()
