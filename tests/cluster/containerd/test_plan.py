from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.containerd import EnginePaths, NoEngineError, plan, plan_engine, prepare_host
from moorage.cluster.containerd.paths import RUN
from moorage.cluster.host import CniPlugins, Disk, Host
from moorage.handlers import Containerd, Handler, NoHandlerError
from tests.cluster.containerd.engines import RUNC, VERSION
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.network.networks import OURS

DEEP = Path("/very", *["long folder name " * 10] * 8)


def test_sockets_stay_short_however_deep_the_data_lies() -> None:
    paths = EnginePaths.of("0a1b2c3d", DEEP, DEEP / "log")
    for socket in (paths.socket, paths.notifications):
        assert len(str(socket).encode()) <= 107
        assert socket.is_relative_to(RUN)
    assert paths.configuration.is_relative_to(DEEP)
    assert paths.endpoint == "unix:///run/moorage/0a1b2c3d/containerd.sock"


def test_what_ends_with_a_reboot_is_not_with_the_data() -> None:
    paths = EnginePaths.of("0a1b2c3d", Path("data"), Path("log"))
    assert paths.data.is_absolute()
    for place in (paths.state, paths.bundles, paths.runtimes, paths.leases, paths.record):
        assert place.is_relative_to(paths.run)
    for place in (paths.root, paths.cni, paths.registries, paths.configuration):
        assert place.is_relative_to(paths.data)


async def planned(host: Host, data: Path, **options: Any) -> Any:
    return await plan_engine(EnginePaths.of("0a1b2c3d", data, data / "log"), host, OURS, **options)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Handler]:
    """What is found on the machine, which the test may change."""
    found = [RUNC]

    async def discover(*_: Any, **__: Any) -> tuple[Handler, ...]:
        return tuple(found)

    async def find_containerd(path: str) -> Containerd:
        del path
        return Containerd(VERSION)

    monkeypatch.setattr(plan, "discover", discover)
    monkeypatch.setattr(plan, "find_containerd", find_containerd)
    return found


@pytest.mark.parametrize(
    ("fields", "snapshotter", "oom_score"),
    [
        ({}, "overlayfs", -999),
        ({"disk": Disk(Path("/x"), 1, 2, overlay=False)}, "native", -999),
        ({"disk": Disk(Path("/x"), 1, 2, overlay=None)}, "native", -999),
        ({"capabilities": frozenset()}, "overlayfs", 0),
    ],
)
@pytest.mark.usefixtures("handlers")
async def test_the_host_decides(fields: dict[str, Any], snapshotter: str, oom_score: int) -> None:
    found = await planned(a_host(**fields), Path('/data "a" \\ b'))
    assert found.configuration.snapshotter == snapshotter
    assert found.configuration.oom_score == oom_score
    assert found.configuration.restricts_oom_score == (oom_score == 0)
    written = tomllib.loads(found.text)
    assert written["root"] == '/data "a" \\ b/containerd'
    assert found.program == Path("/usr/bin/containerd")
    assert found.ctr == Path("/usr/bin/ctr")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"is_root": False}, "needs root"),
        ({"tools": tools_without("containerd")}, "containerd not found"),
        ({"tools": tools_without("containerd", "ctr")}, "containerd and ctr not found"),
        ({"cni": CniPlugins(None)}, "apt-get install containernetworking-plugins"),
    ],
)
@pytest.mark.usefixtures("handlers")
async def test_no_engine(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(NoEngineError, match=said):
        await planned(a_host(**fields), Path("/data"))


async def test_no_runtime(handlers: list[Handler]) -> None:
    handlers.clear()
    with pytest.raises(NoHandlerError):
        await planned(a_host(), Path("/data"))


@pytest.mark.usefixtures("handlers")
async def test_mirrors_get_files() -> None:
    mirrors = {"docker.io": "https://mirror.example"}
    found = await planned(a_host(), Path("/data"), mirrors=mirrors)
    assert "https://mirror.example" in found.registries["docker.io"]
    with pytest.raises(ValueError, match="not-a-url"):
        await planned(a_host(), Path("/data"), mirrors={"docker.io": "not-a-url"})


@pytest.mark.parametrize(("has_moved", "gathers"), [(True, 2), (False, 1), (None, 2)])
async def test_facts_are_gathered_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch, has_moved: bool | None, gathers: int
) -> None:
    asked: list[Path] = []

    async def gather(data_dir: Path) -> Host:
        asked.append(data_dir)
        return a_host()

    def join(*_: Any) -> bool:
        if has_moved is None:
            raise OSError(16, "busy")
        return has_moved

    monkeypatch.setattr(plan, "gather", gather)
    monkeypatch.setattr(plan, "join_hugetlb", join)
    await prepare_host(Path("/data"))
    assert len(asked) == gathers
