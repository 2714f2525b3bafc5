"""Images from files: every name in an archive is listed and can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cluster.images import Image, write_archive
from moorage.cluster.images.layer import Directory, write_layer
from moorage.cri import engine_pb, pb
from moorage.linux.program import Platform
from tests.engine.whole.engines import Caller

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
