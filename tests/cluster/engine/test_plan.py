from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster.engine.paths import ClusterEnginePaths, cgroup_root
from moorage.cluster.engine.plan import EnginePlan, NoEngineError, plan_engine, prepare_host
from moorage.cluster.host import CniPlugins, Inventory
from moorage.cluster.images import BUSYBOX, NGINX_STAND_IN
from moorage.cluster.layout import Layout
from moorage.cluster.network import pod_network
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.engine.requirements import HANDLER_DIRECTORY
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.test_settings import SETTINGS


def test_an_engine_has_the_clusters_places_network_and_mirrors(tmp_path: Path) -> None:
    mirrors = {"docker.io": "https://mirror.example"}
    settings = msgspec.structs.replace(
        SETTINGS, registry_mirrors=mirrors, image_limit_bytes=5 << 30
    )
    host = a_host()
    data = tmp_path / "engine"
    paths = ClusterEnginePaths(data, Path("/run/moorage/0a1b2c3d"))
    assert plan_engine(Layout(tmp_path), settings, host) == EnginePlan(
        paths=paths,
        host=host,
        network=pod_network(settings, Path("/run/moorage/0a1b2c3d/leases")),
        options=EngineOptions(
            paths=EnginePaths(data, Path("/run/moorage/0a1b2c3d/e")),
            socket=Path("/run/moorage/0a1b2c3d/engine.sock"),
            search_path="/usr/sbin:/usr/bin:/sbin:/bin",
            cni_programs=(Path("/opt/cni/bin"),),
            cni_configurations=data / "cni",
            handler_directories=(HANDLER_DIRECTORY,),
            registry_mirrors=mirrors,
            image_limits=ImageLimits(unpacked_bytes=5 << 30),
            pinned_images=frozenset({BUSYBOX, NGINX_STAND_IN}),
            host=host,
        ),
    )
    # The settings leave the engine's limit as it is where none is chosen.
    assert ImageLimits().unpacked_bytes == SETTINGS.image_limit_bytes
    assert cgroup_root(settings) == "/moorage-0a1b2c3d"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_root": False},
         "a container engine needs root: run as root, or without a node"),
        ({"tools": tools_without("conmon")},
         "conmon not found on PATH: apt-get install conmon, or give a running engine with --cri"),
        ({"tools": tools_without("skopeo")},
         "skopeo not found on PATH: apt-get install skopeo, or give a running engine with --cri"),
        ({"tools": {}},
         "conmon and skopeo not found on PATH: apt-get install conmon skopeo, or give a running "
         "engine with --cri"),
        ({"cni": CniPlugins(None)},
         "there are no CNI plugins: apt-get install containernetworking-plugins"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_without_is_named(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(NoEngineError) as refused:
        plan_engine(Layout(tmp_path), SETTINGS, a_host(**fields))
    assert str(refused.value) == message


@pytest.mark.parametrize(("has_moved", "gathers"), [(True, 2), (False, 1), (None, 2)])
async def test_facts_are_gathered_again_after_a_change(
    has_moved: bool | None, gathers: int
) -> None:
    asked: list[Path] = []

    async def gather(data_dir: Path) -> Inventory:
        asked.append(data_dir)
        return a_host()

    def join(*_: Any) -> bool:
        if has_moved is None:
            raise OSError(16, "busy")
        return has_moved

    await prepare_host(Path("/data"), gather, join)
    assert len(asked) == gathers
