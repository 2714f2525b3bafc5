"""The CRI's image calls, from request to reply."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.images.image import Image, ImageConfiguration
from moorage.engine.images.service import ImageServicer, image_message, verbose_info
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.wire.cri import pb
from tests.engine.images.builds import Entry, layer, oci_archive
from tests.engine.images.conftest import Registry


@pytest.fixture
def calls(images: ImageStore) -> ImageServicer:
    return ImageServicer(images, lambda: ("runc", "copied"))


def spec(name: str, handler: str = "") -> pb.ImageSpec:
    return pb.ImageSpec(image=name, runtime_handler=handler)


async def test_an_image_comes_is_shown_and_goes(
    calls: ImageServicer, registry: Registry, place: Path
) -> None:
    archive = oci_archive(place / "a.tar", ["localhost/a"], [layer(Entry("f"))], {"User": "web:1"})
    name = registry.push(archive, "service:1")
    absent = await calls.image_status(pb.ImageStatusRequest(image=spec(name)))
    assert not absent.HasField("image")
    pulled = await calls.pull_image(pb.PullImageRequest(image=spec(name, "runc")))
    status = await calls.image_status(pb.ImageStatusRequest(image=spec(name), verbose=True))
    assert status.image.id == pulled.image_ref
    assert list(status.image.repo_tags) == [name]
    assert len(status.image.repo_digests) == 1
    assert status.image.username == "web"
    assert not status.image.HasField("uid")
    assert status.image.size > 0
    assert json.loads(status.info["info"])["imageSpec"]["config"]["User"] == "web:1"
    everything = await calls.list_images(pb.ListImagesRequest())
    assert list(everything.images) == [status.image]
    streamed = [response async for response in calls.stream_images(pb.StreamImagesRequest())]
    assert [list(response.images) for response in streamed] == [[status.image]]
    none = await calls.list_images(pb.ListImagesRequest(filter=pb.ImageFilter(image=spec("other"))))
    assert list(none.images) == []
    usage = await calls.image_fs_info(pb.ImageFsInfoRequest())
    assert usage.image_filesystems[0].used_bytes.value > 0
    assert usage.container_filesystems[0].fs_id.mountpoint == str(place / "data")
    for _ in range(2):
        await calls.remove_image(pb.RemoveImageRequest(image=spec(pulled.image_ref)))
    assert not (await calls.list_images(pb.ListImagesRequest())).images


async def test_requests_that_can_never_work_are_refused(
    calls: ImageServicer, images: ImageStore
) -> None:
    with pytest.raises(InvalidError, match=r"no runtime handler 'kata' .*copied, runc"):
        await calls.pull_image(pb.PullImageRequest(image=spec("busybox", "kata")))
    with pytest.raises(InvalidError, match=r"no runtime handler 'kata' .*\(configured: none\)"):
        await ImageServicer(images, tuple).pull_image(
            pb.PullImageRequest(image=spec("busybox", "kata"))
        )
    with pytest.raises(InvalidError, match="names no image"):
        await calls.image_status(pb.ImageStatusRequest())
    with pytest.raises(InvalidError, match="invalid reference format"):
        await calls.pull_image(pb.PullImageRequest(image=spec("a b")))


async def test_pinned_images_and_numeric_users_are_reported(paths: ImagePaths, place: Path) -> None:
    archive = oci_archive(place / "a.tar", ["registry.example/pause:3"], [], {"User": "65535"})
    async with ImageStore(paths, pinned=["registry.example/pause:3"]) as images:
        await images.load(archive)
        reply = await ImageServicer(images, tuple).list_images(pb.ListImagesRequest())
    assert reply.images[0].pinned
    assert reply.images[0].uid.value == 65535


async def test_a_loaded_image_is_shown_and_removed_without_a_registry(
    calls: ImageServicer, images: ImageStore, place: Path
) -> None:
    name = "registry.example/a:1"
    archive = oci_archive(place / "a.tar", [name], [layer(Entry("f"))], {"User": "web"})
    (image,) = await images.load(archive)
    message = image_message(image)
    for reference in (name, image.id):
        request = pb.ImageStatusRequest(image=spec(reference))
        assert await calls.image_status(request) == pb.ImageStatusResponse(image=message)
        request.verbose = True
        info = (await calls.image_status(request)).info
        assert dict(info) == verbose_info(image, await images.configuration(image))
    absent = spec("registry.example/absent:1")
    for is_verbose in (False, True):
        request = pb.ImageStatusRequest(image=absent, verbose=is_verbose)
        assert await calls.image_status(request) == pb.ImageStatusResponse()
    for image_filter, shown in (
        (pb.ImageFilter(), [message]),
        (pb.ImageFilter(image=spec(name)), [message]),
        (pb.ImageFilter(image=absent), []),
    ):
        listed = await calls.list_images(pb.ListImagesRequest(filter=image_filter))
        assert list(listed.images) == shown
        stream = calls.stream_images(pb.StreamImagesRequest(filter=image_filter))
        assert [list(part.images) async for part in stream] == ([shown] if shown else [])
    usage = await calls.image_fs_info(pb.ImageFsInfoRequest())
    (of_images,), (of_containers,) = usage.image_filesystems, usage.container_filesystems
    assert of_images.used_bytes.value > of_containers.used_bytes.value == 0
    removal = pb.RemoveImageRequest(image=spec(name))
    for _ in range(2):
        assert await calls.remove_image(removal) == pb.RemoveImageResponse()
    assert images.all() == ()


@pytest.mark.parametrize(("count", "sizes"), [(4, [2, 2]), (5, [2, 2, 1]), (0, [])])
async def test_a_streamed_list_is_in_messages_of_limited_size(count: int, sizes: list[int]) -> None:
    every = tuple(
        Image(id=str(number), layers=(), size_bytes=1, configuration=ImageConfiguration())
        for number in range(count)
    )
    images: Any = SimpleNamespace(all=lambda: every)
    calls = ImageServicer(images, lambda: ("runc",), images_a_message=2)
    parts = [list(part.images) async for part in calls.stream_images(pb.StreamImagesRequest())]
    assert [len(part) for part in parts] == sizes
    assert [image.id for part in parts for image in part] == [image.id for image in every]
