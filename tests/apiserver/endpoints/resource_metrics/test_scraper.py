"""When nodes are scraped, and what becomes of nodes that do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from moorage.api.errors import InternalError
from moorage.apiserver.endpoints.node_agents import NodeAgent, ServerAddress
from moorage.apiserver.endpoints.resource_metrics.scraper import NodeScraper
from moorage.apiserver.endpoints.resource_metrics.usage import Measurement
from tests.apiserver.endpoints.resource_metrics.summaries import NANO, summary
from tests.clocks import FakeClock, settle


class Agents:
    """Node agents that use one CPU each, and count what is read from them."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.urls: list[str] = []
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.under_way = 0
        self.most = 0

    async def fetch(self, agent: NodeAgent, path: str) -> bytes:
        self.urls.append(f"{agent.address.origin}{path}")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            name = agent.node
            if name in self.silent:
                await asyncio.get_running_loop().create_future()
            if name in self.broken:
                raise OSError("connection refused")
            await asyncio.sleep(0)
            return summary((int(self._clock.monotonic() * NANO), 1))
        finally:
            self.under_way -= 1


class Scraped:
    """A scraper, its clock and its agents."""

    def __init__(self, *within_s: float) -> None:
        self.clock = FakeClock()
        self.agents = Agents(self.clock)
        self._scraper = NodeScraper(self.agents.fetch, self.clock, *within_s)

    def start(self, *names: str) -> asyncio.Task[dict[str, Measurement]]:
        return asyncio.create_task(self._scraper.measure({n: agent_of(n) for n in names}, names))

    async def measure(self, *names: str, passing_s: float = 1.0) -> dict[str, Measurement]:
        measuring = self.start(*names)
        await settle(200)
        self.clock.advance(passing_s)
        return await measuring


def agent_of(name: str) -> Callable[[], NodeAgent]:
    def agent() -> NodeAgent:
        if name == "unknown":
            raise InternalError.of("no preferred addresses found")
        return NodeAgent(name, ServerAddress("https", name))

    return agent


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


async def test_the_first_request_takes_two_samples_a_second_apart(scraped: Scraped) -> None:
    measured = await scraped.measure("n1")
    assert scraped.agents.urls == ["https://n1/stats/summary"] * 2
    assert measured["n1"].window_s == 1.0
    usage = measured["n1"].node()
    assert usage is not None
    assert usage.cpu_nanocores == NANO


async def test_a_measurement_is_used_for_ten_seconds(scraped: Scraped) -> None:
    await scraped.measure("n1")
    scraped.clock.advance(9.9)
    measured = await scraped.measure("n1", passing_s=0)
    assert len(scraped.agents.urls) == 2
    assert measured["n1"].window_s == 1.0


@pytest.mark.parametrize(("pause_s", "reads", "window_s"), [(15, 1, 15), (60, 1, 60), (61, 2, 1)])
async def test_later_requests_take_one_sample_unless_the_last_is_old(
    scraped: Scraped, pause_s: float, reads: int, window_s: float
) -> None:
    await scraped.measure("n1")
    scraped.agents.urls.clear()
    scraped.clock.advance(pause_s)
    measured = await scraped.measure("n1", passing_s=0 if reads == 1 else 1)
    assert len(scraped.agents.urls) == reads
    assert measured["n1"].window_s == window_s


async def test_requests_at_the_same_time_share_their_samples(scraped: Scraped) -> None:
    first, second = scraped.start("n1"), scraped.start("n1", "n2")
    await settle(50)
    scraped.clock.advance(1)
    assert set(await first) == {"n1"}
    assert set(await second) == {"n1", "n2"}
    assert len(scraped.agents.urls) == 4


async def test_no_request_waits_twice_for_a_node_that_does_not_answer(scraped: Scraped) -> None:
    scraped.agents.broken.add("n1")
    assert set(await scraped.measure("n1", "n2", "unknown")) == {"n2"}
    scraped.agents.urls.clear()
    scraped.clock.advance(10)
    assert set(await scraped.measure("n1", "n2", "unknown", passing_s=0)) == {"n2"}
    assert scraped.agents.urls == ["https://n2/stats/summary"]
    scraped.agents.broken.clear()
    scraped.clock.advance(5)
    assert set(await scraped.measure("n1", "n2")) == {"n1", "n2"}


async def test_a_failure_leaves_the_last_measurement_for_a_minute(scraped: Scraped) -> None:
    await scraped.measure("n1")
    scraped.agents.broken.add("n1")
    scraped.clock.advance(59)
    assert set(await scraped.measure("n1", passing_s=0)) == {"n1"}
    scraped.clock.advance(2)
    assert await scraped.measure("n1", passing_s=0) == {}


@pytest.mark.slow
async def test_a_node_that_hangs_is_cut_off() -> None:
    scraped = Scraped(0.2)
    scraped.agents.silent.add("n1")
    assert set(await scraped.measure("n1", "n2")) == {"n2"}


async def test_so_many_nodes_are_read_at_once(scraped: Scraped) -> None:
    names = [f"n{number}" for number in range(100)]
    assert set(await scraped.measure(*names)) == set(names)
    assert scraped.agents.most == 16


async def test_nodes_that_are_gone_are_forgotten(scraped: Scraped) -> None:
    await scraped.measure("n1")
    await scraped.measure("n2")
    scraped.agents.urls.clear()
    await scraped.measure("n1")
    assert len(scraped.agents.urls) == 2
