"""`moor engine`: the options it runs with, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.errors import EngineError
from moorage.engine.options import EngineOptions
from moorage.engine.requirements import CNI_CONFIGURATIONS, CNI_PROGRAMS, HANDLER_DIRECTORY
from tests.cli.moor import FakeFactory


class Engine(FakeFactory):
    """An engine that ends at once, or at the first cancellation; its steps in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: tuple[str, ...] = ()
        self.uid = 0
        self.options: EngineOptions | None = None
        self.steps: list[str] = []
        self.error: EngineError | None = None

    @asynccontextmanager
    async def run_engine(self, options: EngineOptions) -> AsyncIterator[Any]:
        self.options = options
        if self.error is not None:
            raise self.error
        self.steps.append("runs")
        yield self
        self.steps.append("ended")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.steps.append("serves")
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        yield

    async def remove_all(self) -> None:
        self.steps.append("removed all")

    def ready(self) -> None:
        self.steps.append("ready")

    def stopping(self) -> None:
        self.steps.append("stopping")

    def service(self) -> Any:
        return self

    def configure_logs(self, level: str) -> None:
        self.steps.append(f"logs {level}")

    def calm_collector(self) -> None:
        self.steps.append("calm")

    def euid(self) -> int:
        return self.uid

    def find_program(self, name: str, path: str | None = None) -> str | None:
        return None if name in self.missing or not path else f"/usr/bin/{name}"


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    before = os.umask(0o022)
    yield engine
    os.umask(before)


def test_it_serves_until_it_is_stopped(engine: Engine) -> None:
    assert engine.moor("engine").status == 0
    assert os.umask(0o022) == 0o077
    assert engine.steps == ["logs info", "calm", "runs", "serves", "ready", "stopping"]
    options = engine.options
    assert options is not None
    assert options.paths.data == Path("/var/lib/moorage-engine")
    assert options.paths.run == Path("/run/moorage-engine")
    assert options.socket == Path("/run/moorage-engine/engine.sock")
    assert options.handler_directories == (HANDLER_DIRECTORY,)
    assert (options.cni_programs, options.cni_configurations) == (CNI_PROGRAMS, CNI_CONFIGURATIONS)
    assert options.registry_mirrors == {}
    assert options.image_limits.unpacked_bytes == 128 * 2**30
    assert "/usr/sbin" in options.search_path.split(":")


def test_each_option_is_given(engine: Engine) -> None:
    here = Path.cwd()
    answer = engine.moor(
        "engine", "--listen", "unix:///x.sock", "--data-dir", "d", "--run-dir", "r",
        "--handlers-dir", "/h", "--handlers-dir", "/i", "--cni-bin", "/b", "--cni-conf", "/c",
        "--registry-mirror", "a=b", "--image-limit", "3Ki", "--log-level", "debug",
    )  # fmt: skip
    assert answer.status == 0
    assert engine.steps[0] == "logs debug"
    options = engine.options
    assert options is not None
    assert (options.paths.data, options.paths.run) == (here / "d", here / "r")
    assert options.socket == Path("/x.sock")
    assert options.handler_directories == (Path("/h"), Path("/i"))
    assert (options.cni_programs, options.cni_configurations) == ((Path("/b"),), Path("/c"))
    assert options.registry_mirrors == {"a": "b"}
    assert options.image_limits.unpacked_bytes == 3072


def test_clear_ends_every_pod_and_leaves(engine: Engine) -> None:
    assert engine.moor("engine", "--clear").status == 0
    assert engine.steps[2:] == ["runs", "removed all", "ended"]


def test_failure_is_one_line(engine: Engine) -> None:
    engine.error = EngineError("another engine runs")
    answer = engine.moor("engine")
    assert (answer.status, answer.err) == (1, "moor: another engine runs\n")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--listen", "/x.sock"), 2, "--listen takes an endpoint of the form"),
        (("--listen", f"unix:///{'x' * 107}"), 2, "at most 107 bytes"),
        (("--listen", f"unix:///{'x' * 106}"), 0, ""),
        (("--run-dir", f"/{'x' * 60}"), 2, "longer than 60 bytes"),
        (("--run-dir", f"/{'x' * 59}"), 0, ""),
        (("--image-limit", "much"), 2, "--image-limit: 'much' is not a quantity such as 128Gi"),
        (("--registry-mirror", "a"), 2, "--registry-mirror takes KEY=VALUE"),
        (("--log-level", "loud"), 2, "--log-level"),
    ],
    ids=str,
)
def test_invalid_options_are_a_usage_error(
    engine: Engine, arguments: tuple[str, ...], status: int, message: str
) -> None:
    answer = engine.moor("engine", *arguments)
    assert answer.status == status
    assert message in answer.err
    assert (engine.options is None) == (status != 0)


def test_a_machine_that_cannot_run_it_is_status_4(engine: Engine) -> None:
    engine.missing = ("skopeo",)
    answer = engine.moor("engine")
    assert answer.status == 4
    assert answer.err == "moor: not found on PATH: skopeo; apt-get install skopeo\n"
    engine.uid = 1000
    answer = engine.moor("engine")
    assert answer.status == 4
    assert "needs root" in answer.err
    assert engine.steps == []
