"""Image RPCs of the CRI: PullImage, ListImages, ImageStatus, RemoveImage, ImageFsInfo.

Source: CRI ImageService. Failures raise an EngineError, which the server maps.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection

from moorage.engine.errors import InvalidError, NotFoundError
from moorage.engine.images.image import Image
from moorage.engine.images.skopeo import Credentials
from moorage.engine.images.store import ImageStore
from moorage.engine.images.usage import FilesystemUsage
from moorage.wire.cri import pb
from moorage.wire.cri.reference import InvalidReferenceError, parse

_IMAGES_A_MESSAGE = 200


class ImageServicer:
    """The image service over a store.

    `handler_names` is called for each request that names a handler, since handlers may change;
    `platform_of` returns the platform of a handler's images, empty for the host's.
    """

    def __init__(
        self,
        images: ImageStore,
        handler_names: Callable[[], Collection[str]],
        platform_of: Callable[[str], str] = lambda _handler: "",
        images_a_message: int = _IMAGES_A_MESSAGE,
    ) -> None:
        self._images_a_message = images_a_message
        self._platform_of = platform_of
        self._images = images
        self._handler_names = handler_names

    async def list_images(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        images = self._filtered(request.filter.image.image)
        return pb.ListImagesResponse(images=[image_message(image) for image in images])

    async def stream_images(
        self, request: pb.StreamImagesRequest
    ) -> AsyncIterator[pb.StreamImagesResponse]:
        """Yield the list in several messages, each well below the message size limit."""
        images = self._filtered(request.filter.image.image)
        step = self._images_a_message
        for begin in range(0, len(images), step):
            part = images[begin : begin + step]
            yield pb.StreamImagesResponse(images=[image_message(image) for image in part])

    async def image_status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        """Return an image's status; a response without an image means that it is absent.

        For a handler, an image that was chosen from an index for another platform is absent; for
        none, the host's platform comes first.
        """
        image = self._found(_name(request.image), request.image.runtime_handler)
        if image is None:
            return pb.ImageStatusResponse()
        info = {}
        if request.verbose:
            info = verbose_info(image, await self._images.configuration(image))
        return pb.ImageStatusResponse(image=image_message(image), info=info)

    async def pull_image(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        """Pull an image. Returns its id as the reference. Raises EngineError."""
        name = _name(request.image)
        self._check_handler(request.image.runtime_handler)
        try:
            reference = parse(name)
        except InvalidReferenceError as error:
            raise InvalidError(str(error)) from error
        credentials = Credentials.of(request.auth, reference)
        image = await self._images.pull(
            name, credentials, self._platform_of(request.image.runtime_handler)
        )
        return pb.PullImageResponse(image_ref=image.id)

    async def remove_image(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        """Remove an image; absent is no error. Raises EngineError."""
        await self._images.remove(_name(request.image))
        return pb.RemoveImageResponse()

    async def image_fs_info(self, _request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        usage = await self._images.usage()
        return pb.ImageFsInfoResponse(
            image_filesystems=[usage_message(usage.images)],
            container_filesystems=[usage_message(usage.containers)],
        )

    def _check_handler(self, handler: str) -> None:
        if handler and handler not in (names := self._handler_names()):
            known = ", ".join(sorted(names)) or "none"
            raise InvalidError(
                f"no runtime handler {handler!r} is configured (configured: {known})"
            )

    def _found(self, name: str, handler: str) -> Image | None:
        try:
            return self._images.find_for(name, self._platform_of(handler) if handler else "")
        except NotFoundError:
            images = () if handler else self._filtered(name)
            return next(iter(images), None)

    def _filtered(self, reference: str) -> tuple[Image, ...]:
        if not reference:
            return self._images.all()
        try:
            return (self._images.find(reference),)
        except NotFoundError:
            return ()


def _name(spec: pb.ImageSpec) -> str:
    if not spec.image:
        raise InvalidError("the request names no image")
    return spec.image


# CRI messages of images. Pure. Source: CRI Image, FilesystemUsage.


def image_message(image: Image) -> pb.Image:
    """Return an image's message in `ListImages`."""
    message = pb.Image(
        id=image.id,
        repo_tags=image.tags,
        repo_digests=image.digests,
        size=image.size_bytes,
        username=image.username,
        pinned=image.is_pinned,
    )
    if image.uid is not None:
        message.uid.value = image.uid
    return message


def usage_message(usage: FilesystemUsage) -> pb.FilesystemUsage:
    """Return the usage of a file system, which kubelets read for evictions."""
    return pb.FilesystemUsage(
        timestamp=usage.timestamp_ns,
        fs_id=pb.FilesystemIdentifier(mountpoint=str(usage.mountpoint)),
        used_bytes=pb.UInt64Value(value=usage.used_bytes),
        inodes_used=pb.UInt64Value(value=usage.inodes),
    )


def verbose_info(image: Image, configuration: bytes) -> dict[str, str]:
    """Return the verbose info that `crictl inspecti` shows; the keys are containerd's."""
    shown = {"imageSpec": json.loads(configuration), "layers": image.layers}
    return {"info": json.dumps(shown)}
