"""Engine extension RPCs (`moorage.engine.v1`): LoadImages, SaveImages, WatchHandlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from moorage.engine.errors import InvalidError
from moorage.engine.handlers import Catalogue, HandlerDirectory, OfferedHandler
from moorage.engine.images.store import ImageStore
from moorage.wire.cri import engine_pb


class ExtensionServicer:
    """The service `moorage.engine.v1`."""

    def __init__(self, images: ImageStore, handlers: HandlerDirectory) -> None:
        self._images = images
        self._handlers = handlers

    async def load_images(
        self, request: engine_pb.LoadImagesRequest
    ) -> engine_pb.LoadImagesResponse:
        """Import the images of an archive. Raises InvalidError for a relative path."""
        archive = Path(request.archive)
        if not archive.is_absolute():
            raise InvalidError(f"archive {request.archive!r} is not an absolute path")
        return engine_pb.LoadImagesResponse(names=await self._images.load_names(archive))

    async def save_images(
        self, request: engine_pb.SaveImagesRequest
    ) -> engine_pb.SaveImagesResponse:
        """Write images to an archive. Raises InvalidError for a relative path."""
        for path in filter(None, (request.archive, request.known_layers)):
            if not Path(path).is_absolute():
                raise InvalidError(f"{path!r} is not an absolute path")
        known_layers = Path(request.known_layers) if request.known_layers else None
        saved = await self._images.save(request.images, Path(request.archive), known_layers)
        return engine_pb.SaveImagesResponse(
            images=[
                engine_pb.SavedImage(name=image.name, id=image.id, is_exact=image.is_exact)
                for image in saved
            ]
        )

    async def watch_handlers(
        self, request: engine_pb.WatchHandlersRequest
    ) -> AsyncIterator[engine_pb.Handlers]:
        """Yield the handlers now, and again at each change."""
        del request
        changed = asyncio.Event()
        unsubscribe = self._handlers.add_listener(lambda _old, _new: changed.set())
        try:
            while True:
                changed.clear()
                yield catalogue_message(self._handlers.catalogue)
                await changed.wait()
        finally:
            unsubscribe()


def catalogue_message(catalogue: Catalogue) -> engine_pb.Handlers:
    """Return the current handlers, sorted by name, and the complaints about handler files."""
    default = catalogue.default_name
    handlers = sorted(catalogue, key=lambda handler: handler.name)
    return engine_pb.Handlers(
        handlers=[_message(handler, is_default=handler.name == default) for handler in handlers],
        complaints=[str(complaint) for complaint in catalogue.complaints],
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
