"""What this engine offers beyond the CRI: images from files, and news of its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from moorage.cri import engine_pb
from moorage.engine.errors import InvalidError
from moorage.engine.images import ImageStore
from moorage.handlers import Catalogue, HandlerFolder, OfferedHandler


class ExtensionCalls:
    """The calls of `moorage.engine.v1`."""

    def __init__(self, images: ImageStore, handlers: HandlerFolder) -> None:
        self._images = images
        self._handlers = handlers

    async def load_images(
        self, request: engine_pb.LoadImagesRequest
    ) -> engine_pb.LoadImagesResponse:
        archive = Path(request.archive)
        if not archive.is_absolute():
            raise InvalidError(f"archive {request.archive!r} is no absolute path")
        loaded = dict.fromkeys(each.id for each in await self._images.load(archive))
        # One image may have come under several names.
        images = [self._images.find(each) for each in loaded]
        names = [name for each in images for name in each.tags or (each.id,)]
        return engine_pb.LoadImagesResponse(names=names)

    async def watch_handlers(
        self, request: engine_pb.WatchHandlersRequest
    ) -> AsyncIterator[engine_pb.Handlers]:
        del request
        changed = asyncio.Event()
        forget = self._handlers.add_listener(lambda _old, _new: changed.set())
        try:
            while True:
                changed.clear()
                yield catalogue_message(self._handlers.catalogue)
                await changed.wait()
        finally:
            forget()


def catalogue_message(catalogue: Catalogue) -> engine_pb.Handlers:
    """The handlers in force and the complaints, in order of their names."""
    default = catalogue.default_name
    handlers = sorted(catalogue, key=lambda each: each.name)
    return engine_pb.Handlers(
        handlers=[_message(each, is_default=each.name == default) for each in handlers],
        complaints=[str(each) for each in catalogue.complaints],
    )


def _message(handler: OfferedHandler, *, is_default: bool) -> engine_pb.Handler:
    definition, verdict = handler.definition, handler.verdict
    return engine_pb.Handler(
        name=handler.name,
        is_default=is_default,
        is_available=handler.is_available,
        reason=verdict.reason,
        remedy=verdict.remedy,
        adapter=definition.adapter,
        program=str(handler.program or definition.binary),
        version=handler.version,
        features=handler.features.names,
        file=str(definition.path),
    )
