"""Images from files: every name in an archive is listed and can be used."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import pytest

from moorage.cluster.images import Image, write_archive
from moorage.cluster.images.catalogue import Directory, write_layer
from moorage.linux.program import Platform
from moorage.wire.cri import CriError, engine_pb, pb
from tests.engine.images.builds import artifact_archive
from tests.engine.whole.engines import Caller, RunningEngine, eventually

pytestmark = [pytest.mark.runtime]


async def test_an_image_with_two_names_is_loaded_under_both(caller: Caller, tmp_path: Path) -> None:
    layer = write_layer({"srv": Directory()})
    names = ["moorage.local/twin-a:1", "moorage.local/twin-b:1"]
    images = [Image(name=name, platform=Platform("amd64"), layers=(layer,)) for name in names]
    archive = tmp_path / "twins.tar"
    archive.write_bytes(write_archive(images))
    request = engine_pb.LoadImagesRequest(archive=str(archive))
    reply = await caller.cri.call(caller.cri.engine.LoadImages, request)
    assert sorted(reply.names) == names
    for name in names:
        asked = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
        response = await caller.cri.call(caller.cri.images.ImageStatus, asked)
        assert sorted(response.image.repo_tags) == names


async def test_only_names_of_the_archive_are_reported(caller: Caller, tmp_path: Path) -> None:
    layer = write_layer({"opt": Directory()})
    names = ["moorage.local/before:1", "moorage.local/after:1"]
    for name in names:
        image = Image(name=name, platform=Platform("amd64"), layers=(layer,))
        archive = tmp_path / "one.tar"
        archive.write_bytes(write_archive([image]))
        request = engine_pb.LoadImagesRequest(archive=str(archive))
        reply = await caller.cri.call(caller.cri.engine.LoadImages, request)
        assert list(reply.names) == [name]


async def test_an_artifact_runs_under_a_handler_for_modules_alone(
    caller: Caller, engine: RunningEngine, tmp_path: Path
) -> None:
    # No shim for WebAssembly is at hand: runc runs a native program in the module's place.
    engine.define("modules", shutil.which("runc") or "runc", more='platform = "wasi/wasm"\n')
    name = "moorage.local/module:1"
    archive = artifact_archive(tmp_path / "module.tar", name, [(_busybox(), "busybox")])
    request = engine_pb.LoadImagesRequest(archive=str(archive))
    assert list((await caller.cri.call(caller.cri.engine.LoadImages, request)).names) == [name]
    pod = await caller.run_pod()
    with pytest.raises(
        CriError, match="is for wasip1/wasm, which runtime handler 'runc'"
    ) as raised:
        await caller.create(pod, image=name)
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT

    async def is_listed() -> bool:
        reply = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        return "modules" in {handler.name for handler in reply.runtime_handlers}

    await eventually(is_listed, "the handler for modules")
    spec = pb.ImageSpec(image=name, runtime_handler="modules")
    status = await caller.cri.call(caller.cri.images.ImageStatus, pb.ImageStatusRequest(image=spec))
    assert status.image.repo_tags == [name]
    other = await caller.run_pod("modules")
    main = await caller.run(other, image=name, args=["echo", "from the module"])
    assert (await caller.ended(main)).exit_code == 0
    assert await caller.log_of(main) == ["from the module"]


def _busybox() -> bytes:
    return Path(shutil.which("busybox") or "busybox").read_bytes()
