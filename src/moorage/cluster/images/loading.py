"""Loading a user's image archive into the cluster's own engine."""

from __future__ import annotations

import re
from pathlib import Path

from moorage.cluster.engine import engine_paths
from moorage.cluster.host import gather
from moorage.cluster.images.importing import NAMESPACE
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.handlers.command import CommandError, must_run

_DEADLINE_S = 600.0
# `ctr images import` says "unpacking NAME (DIGEST)...done" for each image.
_UNPACKED = re.compile(r"^unpacking (\S+) \(", re.MULTILINE)


class LoadError(Exception):
    """An archive that the engine does not take, or an engine that is not ours."""


async def load_archive(layout: Layout, settings: Settings, archive: Path) -> tuple[str, ...]:
    """Import every image of an OCI or Docker archive; their names. Raises LoadError."""
    if settings.cri or not settings.has_node:
        raise LoadError(
            "images are loaded into the cluster's own engine only; this cluster "
            + (f"uses the one at {settings.cri}" if settings.cri else "has no node")
        )
    host = await gather(layout.root)
    ctr = host.tools.get("ctr")
    if ctr is None:
        raise LoadError("the program ctr is missing: apt-get install containerd")
    paths = engine_paths(layout, settings)
    try:
        result = await must_run(
            [ctr.path, "--address", paths.socket, "--namespace", NAMESPACE, "images", "import",
             archive],
            deadline_s=_DEADLINE_S,
        )  # fmt: skip
    except CommandError as error:
        raise LoadError(f"{archive}: {error}") from error
    return tuple(_UNPACKED.findall(result.text))
