"""Removal of runtimes: which handlers may be removed, and what is left without one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from moorage.runtimes.class_users import class_users, users_by_class
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.plan import is_installed
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client


class OrphanedClass(msgspec.Struct, frozen=True):
    """A class whose handler was removed: `pods` counts its pods that have not ended."""

    name: str
    pods: int


def check_removal(handler: str, file: Path) -> None:
    """Raise RuntimeInstallationError unless `moor runtime add` wrote the handler's file."""
    try:
        definition = file.read_bytes()
    except FileNotFoundError:
        raise RuntimeInstallationError(f"there is no handler {handler} ({file})") from None
    if not is_installed(definition):
        raise RuntimeInstallationError(
            f"handler {handler} was not added by `moor runtime add`, but is defined by {file}: set "
            "`enabled = false` in that file to disable it"
        )


async def orphaned_classes(client: Client, handler: str) -> list[OrphanedClass]:
    """Return the classes of a handler. Raises StatusError, UnreachableError."""
    names = sorted(
        one.metadata.name
        for one in (await client.list(RUNTIME_CLASSES)).items
        if one.handler == handler
    )
    if not names:
        return []
    counts = users_by_class(await class_users(client))
    return [OrphanedClass(name, counts[name]) for name in names]


def consequence(classes: list[OrphanedClass]) -> str:
    """Return a sentence on the remaining classes and their pods; empty without a class."""
    if not classes:
        return ""
    names = " ".join(one.name for one in classes)
    pods = sum(one.pods for one in classes)
    running = f"{pods} of its pods go on" if pods else "none of its pods runs"
    return (
        f"RuntimeClass {names} stays: {running}, new ones wait until a node has the handler again; "
        f"delete it to have them refused: kubectl delete runtimeclass {names}"
    )
