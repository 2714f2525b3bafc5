from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster.engine import plan
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.engine.plan import NoEngineError, plan_engine, prepare_host
from moorage.cluster.host import CniPlugins, Inventory
from moorage.cluster.images import BUSYBOX, NGINX_STAND_IN
from moorage.cluster.layout import Layout
from moorage.engine import HANDLER_DIRECTORY
from moorage.engine.images import ImageLimits
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.test_settings import SETTINGS


def test_an_engine_has_the_clusters_places_network_and_mirrors(tmp_path: Path) -> None:
    mirrors = {"docker.io": "https://mirror.example"}
    settings = msgspec.structs.replace(
        SETTINGS, registry_mirrors=mirrors, image_limit_bytes=5 << 30
    )
    engine_plan = plan_engine(Layout(tmp_path), settings, a_host())
    options = engine_plan.options
    assert options.paths.data == tmp_path / "engine"
    assert options.socket == engine_plan.paths.socket
    assert options.cni_programs == (Path("/opt/cni/bin"),)
    assert options.cni_configurations == engine_plan.paths.cni
    assert options.handler_directories == (HANDLER_DIRECTORY,)
    assert options.registry_mirrors == mirrors
    assert options.image_limits == ImageLimits(unpacked_bytes=5 << 30)
    # The settings leave the engine's limit as it is where none is chosen.
    assert ImageLimits().unpacked_bytes == SETTINGS.image_limit_bytes
    assert options.pinned_images == {BUSYBOX, NGINX_STAND_IN}
    assert str(engine_plan.network.subnet) == settings.pod_network
    assert engine_plan.network.leases == engine_plan.paths.leases
    assert cgroup_root(settings) == "/moorage-0a1b2c3d"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_root": False}, "needs root"),
        ({"tools": tools_without("conmon")},
         "conmon not found on PATH: apt-get install conmon, or .* --cri"),
        ({"tools": tools_without("skopeo")}, "skopeo not found"),
        ({"tools": {}}, "conmon and skopeo not found on PATH: apt-get install conmon skopeo"),
        ({"cni": CniPlugins(None)}, "apt-get install containernetworking-plugins"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_without_is_named(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(NoEngineError, match=message):
        plan_engine(Layout(tmp_path), SETTINGS, a_host(**fields))


@pytest.mark.parametrize(("has_moved", "gathers"), [(True, 2), (False, 1), (None, 2)])
async def test_facts_are_gathered_again_after_a_change(
    monkeypatch: pytest.MonkeyPatch, has_moved: bool | None, gathers: int
) -> None:
    asked: list[Path] = []

    async def gather(data_dir: Path) -> Inventory:
        asked.append(data_dir)
        return a_host()

    def join(*_: Any) -> bool:
        if has_moved is None:
            raise OSError(16, "busy")
        return has_moved

    monkeypatch.setattr(plan, "gather", gather)
    monkeypatch.setattr(plan, "mount_hugetlb_v1", join)
    await prepare_host(Path("/data"))
    assert len(asked) == gathers
