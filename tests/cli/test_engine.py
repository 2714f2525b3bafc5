"""`moor engine`: alone on directories of its own, as a service manager or a person starts it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import moorage
from moorage.wire.cri import CriClient, pb
from tests.forks import run
from tests.own_engine import DEADLINE_S, OwnEngine, engine_directories
from tests.running import skip_without_runtimes

pytestmark = pytest.mark.runtime


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    skip_without_runtimes()
    with engine_directories() as engine:
        yield engine


async def _ask(endpoint: str) -> tuple[str, set[str], dict[str, bool]]:
    async with CriClient(endpoint) as cri:
        version = await cri.call(cri.runtime.Version, pb.VersionRequest())
        status = await cri.call(cri.runtime.Status, pb.StatusRequest())
    handlers = {handler.name for handler in status.runtime_handlers}
    return version.runtime_name, handlers, {x.type: x.status for x in status.status.conditions}


def test_engine_reports_ready_answers_and_stops_on_sigterm(engine: OwnEngine) -> None:
    log = engine.root / "log"
    with engine.started(log) as process:
        name, handlers, conditions = asyncio.run(_ask(engine.endpoint))
        assert name == "moorage"
        assert {"", "runc"} <= handlers
        # There is no network's configuration in its directory, which is no reason not to run.
        assert conditions == {"RuntimeReady": True, "NetworkReady": False}
        process.send_signal(signal.SIGTERM)
        status = process.wait(DEADLINE_S)
    log_text = log.read_text()
    assert status == 0, log_text
    assert f"engine ready version={moorage.__version__}" in log_text
    assert "Traceback" not in log_text
    assert not Path(engine.endpoint.removeprefix("unix://")).exists()
    engine.clear()
    assert {path.name for path in (engine.root / "d" / "handlers.d").iterdir()} >= {"runc.toml"}


def test_two_on_the_same_directories_are_one_too_many(engine: OwnEngine) -> None:
    with engine.started(engine.root / "log") as process:
        second = run(*engine.command(), timeout_s=DEADLINE_S)
        assert second.returncode == 1
        assert "another engine is running on" in second.stderr
        assert "Traceback" not in second.stderr
        # The first still answers: its socket was not taken.
        assert asyncio.run(_ask(engine.endpoint))[0] == "moorage"
        assert process.poll() is None
