"""Loading of a user's image archive into the cluster's own engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.cluster.errors import ClusterError
from moorage.wire.cri import CriClient, CriError, engine_pb

_DEADLINE_S = 600.0
# Part of the engine's error for an archive without an image.
_NO_IMAGE = "has neither index.json nor manifest.json"


class LoadError(ClusterError):
    """The engine refuses an archive, or cannot be reached."""


async def load_archive(endpoint: str, archive: Path) -> tuple[str, ...]:
    """Load every image of an OCI or Docker archive; return their names. Raises LoadError."""
    place = await asyncio.to_thread(archive.absolute)
    request = engine_pb.LoadImagesRequest(archive=str(place))
    try:
        async with CriClient(endpoint) as cri:
            reply = await cri.call(cri.engine.LoadImages, request, timeout_s=_DEADLINE_S)
    except CriError as error:
        advice = ""
        if _NO_IMAGE in error.sentence:
            advice = "; an archive of a root file system is imported with `moor image import`"
        raise LoadError(f"{error.sentence}{advice}") from error
    return tuple(reply.names)
