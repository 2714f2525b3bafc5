"""Loading a user's image archive into the cluster's own engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.cri import CriClient, CriError, engine_pb

_DEADLINE_S = 600.0


class LoadError(Exception):
    """An archive that the engine does not take, or an engine that is not there."""


async def load_archive(endpoint: str, archive: Path) -> tuple[str, ...]:
    """Load every image of an OCI or Docker archive; their names. Raises LoadError."""
    place = await asyncio.to_thread(archive.absolute)
    request = engine_pb.LoadImagesRequest(archive=str(place))
    try:
        async with CriClient(endpoint) as cri:
            reply = await cri.call(cri.engine.LoadImages, request, timeout_s=_DEADLINE_S)
    except CriError as error:
        raise LoadError(f"{archive}: {error.sentence}") from error
    return tuple(reply.names)
