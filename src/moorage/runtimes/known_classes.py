"""Known classes: a command that names a class which does not exist is refused before it works."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.cluster.errors import ClusterError
from moorage.inspect.side_by_side import class_names
from moorage.inspect.trials import NO_CLASS
from moorage.wire.client.rest import Client


class UnknownClassError(ClusterError):
    """A class that was named does not exist; the text has those that do."""


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
