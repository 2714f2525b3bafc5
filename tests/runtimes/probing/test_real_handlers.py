"""Real handlers, and some that break, hang, lie or flood: what discovery makes of each."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moorage.api.clock import SystemClock
from moorage.cluster.engine.handler_discovery import known_handlers
from moorage.cluster.images import catalogue, write_archive
from moorage.linux.cgroups import current_cgroups
from moorage.runtimes.probing import Outcome, ProbeContainer
from moorage.runtimes.probing.cache import ProbeCache
from moorage.runtimes.probing.cri_carrier import CriCarrier
from moorage.runtimes.probing.discovery import HandlerDiscovery
from moorage.runtimes.probing.evidence import Evidence, HandlerState, Working
from moorage.runtimes.probing.host import read_host
from moorage.runtimes.probing.pod_cgroups import pod_cgroups_below
from moorage.runtimes.probing.running import run_plain, run_suite
from moorage.runtimes.probing.suite import PROBES
from moorage.runtimes.probing.verdicts import Finding, findings
from moorage.wire.cri import CriClient, engine_pb, pb
from tests.engine.whole.engines import RunningEngine, an_engine, skip_where_no_engine_runs
from tests.running import BUSYBOX

pytestmark = pytest.mark.runtime

_CGROUPS = "/moorage-tests-handlers"
_FEATURES = (
    '{"ociVersionMin":"1.0.0","ociVersionMax":"1.2.0","mountOptions":["ro","rro"],'
    '"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{"enabled":true}}}}'
)
# Mounts read-only what it is asked to mount recursively read-only, as if it had not understood.
_FORGETS = (
    'for word in "$@"; do bundle="${word#*=}"; [ -f "$bundle/config.json" ] && '
    """sed -i 's/"rro"/"ro"/g' "$bundle/config.json"; done; """
)
# Those that work may take long beside other tests; those that never end need no more.
_DEADLINES_S = {
    10.0: frozenset({"crun", "broken", "lies"}),
    2.0: frozenset({"hangs", "floods"}),
}
_NAMES = frozenset().union(*_DEADLINES_S.values())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """An engine with handlers of every kind."""
    skip_where_no_engine_runs()
    busybox, catatonit = shutil.which("busybox"), shutil.which("catatonit")
    images = asyncio.run(
        catalogue(Path(busybox or "busybox"), Path(catatonit) if catatonit else None)
    )
    archive = tmp_path_factory.mktemp("images") / "images.tar"
    archive.write_bytes(write_archive(images))
    with an_engine(archive) as running:
        version = 'case "$*" in *--version*|*features*) exec crun "$@";; esac; '
        running.define("crun", "crun")
        running.define("broken", running.program("broken", f"{version}echo no way >&2; exit 1"))
        running.define("hangs", running.program("hangs", f"{version}sleep 600"))
        # More than anyone keeps; without end it would take a CPU until the deadline.
        noise = "yes noise | head -c 16000000"
        floods = f"{noise}; {noise} >&2; sleep 600"
        running.define("floods", running.program("floods", f"{version}{floods}"))
        claims = f"""case "$*" in *features*) echo '{_FEATURES}'; exit 0;; esac; """
        lies = f'{claims}{_FORGETS}exec crun "$@"'
        running.define("lies", running.program("lies", lies))
        yield running


@asynccontextmanager
async def _carrier(
    engine: RunningEngine, state: Path, owner: str = "tests"
) -> AsyncIterator[CriCarrier]:
    async with CriClient(engine.endpoint) as cri:
        yield CriCarrier(
            cri,
            owner=owner,
            state=state,
            cgroup_parent=f"{_CGROUPS}-{owner}",
            cgroups=current_cgroups(),
        )


async def _suite(engine: RunningEngine, state: Path, handler: str) -> dict[str, Finding]:
    host = read_host()
    async with _carrier(engine, state) as carrier:
        plain = await run_plain(carrier, handler, host)
        evidence: Evidence = await run_suite(carrier, handler, host, plain)
    return findings(evidence)


async def test_only_handlers_that_work_are_found_and_the_others_say_why(
    engine: RunningEngine, tmp_path: Path
) -> None:
    states: dict[str, HandlerState] = {}
    async with _carrier(engine, tmp_path / "state") as carrier:
        handlers = known_handlers(await _listed(carrier._cri))
        for deadline_s, names in _DEADLINES_S.items():
            discovery = HandlerDiscovery(
                carrier, ProbeCache(tmp_path / "results"), read_host(), SystemClock(),
                working_deadline_s=deadline_s,
            )  # fmt: skip
            discovery.set_handlers("engine", [one for one in handlers if one.name in names])
            running = asyncio.ensure_future(discovery.run())
            try:
                async with asyncio.timeout(100):
                    await discovery.wait_settled()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            states |= discovery.states
    for name in ("crun", "lies"):
        assert states[name].working is Working.YES, states[name]
    for name in ("broken", "hangs", "floods"):
        state = states[name]
        assert state.working is Working.NO, (name, state)
        assert len(state.reason) <= 500
        assert f"{name}.toml" in state.remedy
    assert "hang" in states["hangs"].reason or "within" in states["hangs"].reason


async def _listed(cri: CriClient) -> engine_pb.Handlers:
    """Return the engine's handlers once it has asked each program for its version."""
    request = engine_pb.WatchHandlersRequest()
    async with asyncio.timeout(60):
        async for listed in cri.stream(cri.engine.WatchHandlers, request):
            if {handler.name for handler in listed.handlers if handler.is_available} >= _NAMES:
                return listed
    raise AssertionError("the engine ended its stream")


async def test_features_that_a_runtime_only_claims_are_disproved(
    engine: RunningEngine, tmp_path: Path
) -> None:
    host, name = read_host(), "recursive-mount"
    results = {}
    async with _carrier(engine, tmp_path / "state") as carrier:
        for handler in ("lies", "crun"):
            container = PROBES[name].container(host)
            results[handler] = await carrier.run(handler, container, deadline_s=30)
    found = findings(Evidence(host, {name: results["lies"]}))["recursive-read-only-mounts"]
    assert found.state == "Unsupported"
    assert "writable" in found.message
    # crun does not claim it, so the engine refuses.
    assert results["crun"].outcome is Outcome.REFUSED


@pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed")
async def test_gvisor_of_2022_lacks_the_statx_of_newer_ls(
    engine: RunningEngine, tmp_path: Path
) -> None:
    async with CriClient(engine.endpoint) as cri:
        status = await cri.call(cri.runtime.Status, pb.StatusRequest())
    names = [handler.name for handler in status.runtime_handlers]
    if "gvisor" not in names:
        pytest.skip("the engine has no handler gvisor")
    found = await _suite(engine, tmp_path, "gvisor")
    async with CriClient(engine.endpoint) as cri:
        listed = await _listed(cri)
    version = next(one.version for one in listed.handlers if one.name == "gvisor")
    if "20221219" in version:
        assert found["syscall-statx"].state == "Unsupported"
        assert "EINVAL" in found["syscall-statx"].message
        assert found["blocking-reads"].state == "Unsupported"
    assert found["memory-limit"].state == "Supported"
    assert found["host-pid"].state == "Unsupported"
    assert found["capability-chown"].state == "Supported"


async def test_what_a_killed_process_left_is_removed_by_the_next(
    engine: RunningEngine, tmp_path: Path
) -> None:
    async with _carrier(engine, tmp_path / "state", "killed") as killed:
        sleeper = ProbeContainer(image=BUSYBOX, command=("sleep", "600"))
        # Entered and never left, as by SIGKILL.
        abandoned = killed.running("crun", sleeper, deadline_s=30)
        await abandoned.__aenter__()
        async with _carrier(engine, tmp_path / "state", "killed") as carrier:
            assert await carrier.clean() == 1
            assert await carrier.clean() == 0
        assert not (tmp_path / "state").exists()
        assert not pod_cgroups_below(current_cgroups(), f"{_CGROUPS}-killed")
        await abandoned.__aexit__(None, None, None)
