"""Configuration of an engine: the seam between the engines' formats and the installation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from moorage.engine.handlers import HandlerDefinition
from moorage.runtimes.installing.engines.changes import FileChange


class Configuration(Protocol):
    """The files of one engine. Methods raise RuntimeInstallationError for what cannot be read."""

    def handlers(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the table of each handler that the engine has with these files."""

    def written(self) -> frozenset[str]:
        """Return the handlers that `moor runtime` wrote."""

    def with_handler(self, definition: HandlerDefinition, program: str) -> tuple[FileChange, ...]:
        """Return the changes that add a handler, or replace one that `moor runtime` wrote.

        `program` is the path of the runtime or shim. Raises RuntimeInstallationError for a handler
        of another's, for options that the engine does not have, and for files that cannot be
        changed.
        """

    def without_handler(self, handler: str) -> tuple[FileChange, ...]:
        """Return the changes that remove a handler. Raises RuntimeInstallationError as above."""
