"""Image volumes of containers: pulled before the start, passed to the engine, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.node.objects import a_pod, wire_container
from tests.node.pods.lives import living

VOLUMES = [
    {"name": "model", "image": {"reference": "model:1", "pullPolicy": "IfNotPresent"}},
    {"name": "other", "image": {"reference": "other:1"}},
    {"name": "data", "emptyDir": {}},
]


def mounting(*names: str) -> Any:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    return a_pod(wire_container(volumeMounts=mounts), volumes=VOLUMES)


async def test_the_engine_gets_the_images_that_the_container_mounts(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(mounting("model", "data"))
        await life.until(lambda: life.engine.running == ["app"])
        (container,) = (status for _, status in life.engine._containers.values())
        by_path = {mount.container_path: mount for mount in container.mounts}
        model = by_path["/model"]
        assert (model.image.user_specified_image, model.host_path) == ("model:1", "")
        assert model.image.image.endswith("model:1")
        assert model.readonly
        assert by_path["/data"].host_path
        assert "/other" not in by_path


async def test_missing_image_volume_is_reported_and_nothing_starts(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as life:

        async def image(reference: str, handler: str = "") -> Any:
            del handler
            if reference.startswith("model"):
                return None
            return await type(life.engine).image(life.engine, reference)

        life.engine.image = image  # type: ignore[method-assign]
        volumes = [{"name": "model", "image": {"reference": "model:1", "pullPolicy": "Never"}}]
        mounts = [{"name": "model", "mountPath": "/model"}]
        life.begin(a_pod(wire_container(volumeMounts=mounts), volumes=volumes))
        await life.until(lambda: life.waiting() == "ErrImageNeverPull")
        assert life.engine.running == []
        assert "ErrImageNeverPull" in life.events.reasons
