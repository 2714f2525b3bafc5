"""Discovery of handlers: what is probed when, and what is reported meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.api.runtime_group import (
    SUPPORTED,
    UNKNOWN,
    UNSUPPORTED,
    ProfileFeature,
    RuntimeProgram,
)
from moorage.runtimeclass.features import FEATURES
from moorage.runtimes.probing.cache import ProbeCache, ProbedHandler
from moorage.runtimes.probing.discovery import HandlerDiscovery, without_disproved
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.runtimes.probing.host import HostFacts
from tests.clocks import FakeClock, settle
from tests.runtimes.probing.fake_carrier import FakeCarrier

_HOST = HostFacts(kernel="6.1.0", boot_id="host", architecture="amd64", devices=())
_FIRST_RETRY_S = 30.0


class _Node:
    """A discovery that runs, with its clock, carrier and the handlers' programs."""

    def __init__(self, directory: Path, carrier: FakeCarrier, *, lists_unproven: bool) -> None:
        self.clock = FakeClock()
        self.carrier = carrier
        self.directory = directory
        self.changes = 0
        self.discovery = HandlerDiscovery(
            carrier,
            ProbeCache(directory / "results"),
            _HOST,
            self.clock,
            lists_unproven=lists_unproven,
            working_deadline_s=5,
        )
        self.discovery.add_listener(self._count)

    def _count(self) -> None:
        self.changes += 1

    def handler(self, name: str, *, is_default: bool = False, content: str = "") -> KnownHandler:
        program = self.directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        if content or not program.exists():
            program.write_text(content or name)
        return KnownHandler(
            name=name,
            definition=content or name,
            programs=(program,),
            program=RuntimeProgram(name=name, path=str(program)),
            file=f"/h/{name}.toml",
            is_default=is_default,
        )

    def list_handlers(self, *names: str, default: str = "") -> None:
        self.discovery.set_handlers(
            "engine 1", [self.handler(name, is_default=name == default) for name in names]
        )

    def working(self) -> dict[str, Working]:
        return {name: state.working for name, state in self.discovery.states.items()}

    def has_features(self, name: str) -> bool:
        state = self.discovery.states[name]
        return state.probed is not None and bool(state.probed.features)

    def reported(self, *names: str) -> list[str]:
        listed = [NodeRuntimeHandler(name=name) for name in names]
        return [handler.name for handler in self.discovery.reported(listed)]


@asynccontextmanager
async def _running(
    directory: Path, carrier: FakeCarrier | None = None, *, lists_unproven: bool = False
) -> AsyncIterator[_Node]:
    node = _Node(directory, carrier or FakeCarrier(), lists_unproven=lists_unproven)
    running = asyncio.ensure_future(node.discovery.run())
    try:
        yield node
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _until(condition: Callable[[], object]) -> None:
    """Poll: what the discovery does between two changes of its states announces nothing."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "name",
    ["kata_qemu", "kata.qemu", "Kata", "a b", "x\x1b[31m", "x\n", "-x", "a/b", "é", "a" * 64],
)
async def test_a_handler_that_no_class_can_name_keeps_no_other_from_being_known(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with _running(tmp_path, lists_unproven=True) as node:
        for _ in range(2):
            known = KnownHandler(name=name, definition=name)
            node.discovery.set_handlers("engine 1", [known, node.handler("crun")])
        await node.discovery.wait_settled()
        assert node.working() == {"crun": Working.YES}
        assert [record.levelname for record in caplog.records if "left out" in record.message] == [
            "WARNING"
        ]


async def test_handlers_that_work_are_reported_and_their_features_are_probed_afterwards(
    tmp_path: Path,
) -> None:
    async with _running(tmp_path, FakeCarrier(broken={"bad": "no such binary"})) as node:
        node.list_handlers("crun", "bad", default="crun")
        assert node.reported("", "crun", "bad") == [""]
        await node.discovery.wait_settled()
        assert node.working() == {"crun": Working.YES, "bad": Working.NO}
        assert node.reported("", "crun", "bad") == ["", "crun"]
        state = node.discovery.states["bad"]
        assert state.reason == "no such binary"
        assert "/h/bad.toml" in state.remedy
        await _until(lambda: node.has_features("crun"))
        assert ("crun", "system-calls") in node.carrier.runs
        assert not [program for handler, program in node.carrier.runs if handler == "bad"][1:]


async def test_a_default_handler_that_is_broken_is_not_reported_as_the_default(
    tmp_path: Path,
) -> None:
    async with _running(tmp_path, FakeCarrier(hanging={"crun"})) as node:
        node.list_handlers("crun", "runc", default="crun")
        await node.discovery.wait_settled()
        assert node.reported("", "crun", "runc") == ["runc"]
        assert "hangs" in node.discovery.states["crun"].reason


async def test_nothing_is_probed_that_an_earlier_process_probed(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        node.list_handlers("crun")
        await _until(lambda: node.discovery.states and node.has_features("crun"))
    async with _running(tmp_path) as again:
        again.list_handlers("crun")
        await again.discovery.wait_settled()
        assert again.reported("crun") == ["crun"]
        assert again.has_features("crun")
        assert again.carrier.runs == []


async def test_one_slow_probe_leaves_only_its_features_unknown_and_is_probed_again(
    tmp_path: Path,
) -> None:
    def features(node: _Node) -> dict[str, str]:
        probed = node.discovery.states["crun"].probed
        assert probed is not None
        return {feature.name: feature.state for feature in probed.features}

    async with _running(tmp_path, FakeCarrier(slow={"cpu"})) as node:
        node.list_handlers("crun")
        await _until(lambda: node.discovery.states and node.has_features("crun"))
        first = features(node)
        assert first["cpu-limit"] == UNKNOWN
        assert len(first) == len(FEATURES)

    async def start_again(slow: set[str], runs: set[str]) -> None:
        async with _running(tmp_path, FakeCarrier(slow=slow)) as again:
            again.list_handlers("crun")
            await again.discovery.wait_settled()
            # Nothing that was found is forgotten while the rest is probed.
            found = {(name, state) for name, state in first.items() if state != UNKNOWN}
            assert features(again).items() >= found
            await _until(lambda: {program for _, program in again.carrier.runs} == runs)
            await _until(lambda: (features(again)["cpu-limit"] == UNKNOWN) == bool(slow))
            await settle()
            assert {program for _, program in again.carrier.runs} == runs

    await start_again({"cpu"}, {"facts", "cpu"})
    await start_again(set(), {"facts", "cpu"})
    await start_again(set(), set())


async def test_a_damaged_cache_is_probed_again(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        node.list_handlers("crun")
        await _until(lambda: node.discovery.states and node.has_features("crun"))
    for path in (tmp_path / "results").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    async with _running(tmp_path) as again:
        again.list_handlers("crun")
        await _until(lambda: again.discovery.states and again.has_features("crun"))
        assert again.carrier.runs


async def test_two_names_for_the_same_are_probed_once(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        first = node.handler("gvisor")
        second = KnownHandler(name="runsc", definition=first.definition, programs=first.programs)
        node.discovery.set_handlers("engine 1", [first, second])
        await _until(lambda: node.discovery.states and node.has_features("runsc"))
        assert node.has_features("gvisor")
        assert len({handler for handler, _ in node.carrier.runs}) == 1


async def test_a_broken_handler_is_tried_again_later_and_less_and_less_often(
    tmp_path: Path,
) -> None:
    carrier = FakeCarrier(broken={"bad": "it is broken"})
    async with _running(tmp_path, carrier) as node:
        node.list_handlers("bad")
        await node.discovery.wait_settled()
        runs = []
        for _ in range(4):
            await _until(lambda: node.clock.next_s is not None)
            runs.append(node.clock.next_s or 0)
            carrier.runs.clear()
            node.clock.advance(node.clock.next_s or 0)
            await _until(lambda: carrier.runs)
        assert runs[0] <= 2 * _FIRST_RETRY_S
        assert runs[-1] > 2 * runs[0]
        assert node.changes <= 3
        carrier.broken.clear()
        await _until(lambda: node.clock.next_s is not None)
        node.clock.advance(node.clock.next_s or 0)
        await _until(lambda: node.working()["bad"] is Working.YES)


async def test_a_changed_program_is_probed_at_once(tmp_path: Path) -> None:
    carrier = FakeCarrier(broken={"bad": "it is broken"})
    async with _running(tmp_path, carrier) as node:
        node.list_handlers("bad")
        await node.discovery.wait_settled()
        carrier.broken.clear()
        (tmp_path / "bin" / "bad").write_text("repaired")

        def is_repaired() -> bool:
            # The pause in which further changes are awaited.
            node.clock.advance(0.1)
            return node.working()["bad"] is Working.YES

        await _until(is_repaired)


async def test_an_engine_that_is_down_says_nothing_about_handlers(tmp_path: Path) -> None:
    carrier = FakeCarrier(is_down=True)
    async with _running(tmp_path, carrier, lists_unproven=True) as node:
        node.list_handlers("kata")
        await _until(lambda: node.clock.next_s is not None)
        assert node.reported("", "kata") == ["", "kata"]
        carrier.is_down = False

        def is_working() -> bool:
            node.clock.advance(node.clock.next_s or 0)
            return node.working().get("kata") is Working.YES

        await _until(is_working)


async def test_a_handler_that_goes_is_forgotten(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        node.list_handlers("crun", "kata")
        await node.discovery.wait_settled()
        node.list_handlers("crun")
        await _until(lambda: list(node.working()) == ["crun"])


async def test_features_that_probes_disproved_are_not_reported(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        node.list_handlers("liar")
        await _until(lambda: node.discovery.states and node.has_features("liar"))
        claimed = NodeRuntimeHandler(
            name="liar",
            features=NodeRuntimeHandlerFeatures(
                recursive_read_only_mounts=True, user_namespaces=True
            ),
        )
        (reported,) = node.discovery.reported([claimed])
        assert reported.features is not None
        # The fake shows no mapping of users.
        assert reported.features.user_namespaces is False


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("state", [UNSUPPORTED, SUPPORTED, UNKNOWN])
@pytest.mark.parametrize("feature", ["recursive-read-only-mounts", "user-namespaces"])
def test_a_feature_is_reported_if_it_is_claimed_and_not_disproved(
    feature: str, state: str, claimed: bool
) -> None:
    handler = NodeRuntimeHandler(
        name="a",
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts=claimed, user_namespaces=claimed
        ),
    )
    probed = ProbedHandler(features=(ProfileFeature(name=feature, state=state),))
    seen = without_disproved(
        handler, HandlerState(handler=KnownHandler(name="a"), probed=probed)
    ).features
    is_reported = claimed and state != UNSUPPORTED
    assert seen == NodeRuntimeHandlerFeatures(
        recursive_read_only_mounts=is_reported if feature != "user-namespaces" else claimed,
        user_namespaces=is_reported if feature == "user-namespaces" else claimed,
    )


async def test_when_nothing_changes_nothing_is_done(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        node.list_handlers("crun")
        await _until(lambda: node.discovery.states and node.has_features("crun"))
        await _until(lambda: node.clock.next_s is not None)
        changes, runs = node.changes, len(node.carrier.runs)
        node.list_handlers("crun")
        await asyncio.sleep(0.05)
        assert (node.changes, len(node.carrier.runs)) == (changes, runs)
        assert (node.clock.next_s or 0) > 3600


async def test_that_an_engine_has_no_handlers_is_news_too(tmp_path: Path) -> None:
    async with _running(tmp_path) as node:
        assert not node.discovery.is_listed
        node.list_handlers()
        await _until(lambda: node.discovery.is_listed)
        assert node.changes == 1
