"""Known classes: a command that names a class which does not exist is refused before it works."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.errors import OperationError
from moorage.runtimeclass.temporary_classes import is_temporary
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client

NO_CLASS = "-"
"""A pod without `runtimeClassName`, where a command takes the name of a class."""


class UnknownClassError(OperationError):
    """A class that was named does not exist; the text has those that do."""


async def class_names(client: Client) -> list[str]:
    """Return the names of the RuntimeClasses that pods may name, without those of probes.

    Raises StatusError, UnreachableError.
    """
    metadata = [one.metadata for one in (await client.list(RUNTIME_CLASSES)).items]
    return sorted(one.name for one in metadata if not is_temporary(one.name, one.labels))


async def check_classes(client: Client, names: Iterable[str]) -> None:
    """Check that classes exist; `-`, for no class, does.

    Raises UnknownClassError, StatusError, UnreachableError.
    """
    present = await class_names(client)
    unknown = [name for name in dict.fromkeys(names) if name not in (NO_CLASS, *present)]
    if unknown:
        verb = "does" if len(unknown) == 1 else "do"
        raise UnknownClassError(
            f"RuntimeClass {', '.join(unknown)} {verb} not exist; those that do: "
            f"{', '.join(present) or 'none'}"
        )
