"""An engine put together in this process: its directories, its lock, its socket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.engine.engine import EngineBusyError, running
from moorage.engine.errors import FailedError
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.wire.cri import CriClient, pb
from tests.engine.handlers.programs import program
from tests.engine.images.conftest import place

__all__ = ["place"]


@pytest.fixture
def options(place: Path) -> EngineOptions:
    return EngineOptions(
        paths=EnginePaths(place / "data", place / "run"),
        socket=place / "made/engine.sock",
        search_path=str(place / "bin"),
        cni_configurations=place / "net.d",
        handler_directories=(place / "handlers.d",),
        spare_networks=0,
    )


async def test_an_engine_answers_on_its_socket_and_is_alone(options: EngineOptions) -> None:
    for _ in range(2):
        async with running(options) as engine:
            assert not options.socket.exists()
            async with engine.serving():
                assert options.socket.stat().st_mode & 0o777 == 0o600
                async with CriClient(f"unix://{options.socket}") as client:
                    answer = await client.call(client.runtime.Version, pb.VersionRequest())
                    assert answer.runtime_name == "moorage"
                with pytest.raises(EngineBusyError, match=f"{options.paths.run}; stop it first"):
                    async with running(options):
                        raise AssertionError("two engines on one directory")
            assert not options.socket.exists()
            assert engine.images.all() == ()
        assert options.paths.lock.stat().st_mode & 0o777 == 0o600
    assert options.paths.bundles.stat().st_mode & 0o777 == 0o711
    for private in (options.paths.data, options.paths.container_records, options.paths.exits):
        assert private.stat().st_mode & 0o777 == 0o700


async def test_engine_recovers_before_it_serves(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered: list[object] = []

    async def recover(context: object) -> None:
        recovered.append(context)

    monkeypatch.setattr("moorage.engine.engine.recover", recover)
    async with running(options) as engine:
        assert recovered == [engine.context]


async def test_handlers_come_from_the_directories(options: EngineOptions, place: Path) -> None:
    program(place / "bin", "mine", "exit 1")
    (place / "handlers.d").mkdir()
    (place / "handlers.d/mine.toml").write_text('adapter = "oci"\nbinary = "mine"\n')
    async with running(options) as engine:
        assert "mine" in engine.context.handlers().handlers
        assert engine.handlers.catalogue is engine.context.handlers()


@pytest.mark.parametrize("name", ["conmon", "skopeo"])
async def test_programs_that_others_can_write_are_not_run(
    options: EngineOptions, place: Path, name: str
) -> None:
    program(place / "bin", name, "exit 1").chmod(0o777)
    with pytest.raises(FailedError, match=f"refusing to run {name}: "):
        async with running(options):
            raise AssertionError("taken")
    os.chmod(place / "bin" / name, 0o755)
    async with running(options) as engine:
        assert engine.context.options is options
