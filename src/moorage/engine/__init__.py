"""Container engine: a CRI v1 server that drives runtime handlers directly.

    async with running(EngineOptions(...)) as engine: ...

Without pause process, shim or daemon between a kubelet and a runtime: namespaces are pinned, each
container has a monitor (conmon) that outlives the engine, and a handler is a file. Decision:
docs/decisions/021-an-engine-of-our-own.md.
"""

from moorage.engine.engine import Engine, EngineBusyError, running
from moorage.engine.errors import EngineError, NotFoundError
from moorage.engine.images import ImageStore
from moorage.engine.options import (
    CNI_CONFIGURATIONS,
    HANDLER_DIRECTORY,
    NEEDED_PROGRAMS,
    EngineOptions,
)
from moorage.engine.paths import EnginePaths

__all__ = [
    "CNI_CONFIGURATIONS",
    "HANDLER_DIRECTORY",
    "NEEDED_PROGRAMS",
    "Engine",
    "EngineBusyError",
    "EngineError",
    "EngineOptions",
    "EnginePaths",
    "ImageStore",
    "NotFoundError",
    "running",
]
