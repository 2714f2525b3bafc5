"""Changes of files: what a configuration file has before and after. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from moorage.runtimes.installing.errors import RuntimeInstallationError


class EngineFile(msgspec.Struct, frozen=True, dict=True):
    """A configuration file that an engine reads."""

    path: Path
    content: bytes

    @cached_property
    def text(self) -> str:
        """The file's text. Raises RuntimeInstallationError if it is not UTF-8."""
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise unreadable(self.path, "it is not UTF-8 text") from error

    @cached_property
    def document(self) -> dict[str, Any]:
        """The file's values. Raises RuntimeInstallationError if it is not TOML."""
        try:
            return tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise unreadable(self.path, f"it is not TOML ({error})") from error


class FileChange(msgspec.Struct, frozen=True):
    """A file's content before and after a change; None where it does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def inverse(self) -> FileChange:
        """Return the change back."""
        return FileChange(self.path, self.after, self.before)


def applied(files: Iterable[EngineFile], changes: Iterable[FileChange]) -> tuple[EngineFile, ...]:
    """Return the files with the changes made; new ones stand last."""
    contents: dict[Path, bytes | None] = {file.path: file.content for file in files}
    contents |= {change.path: change.after for change in changes}
    return present(contents)


def present(contents: Mapping[Path, bytes | None]) -> tuple[EngineFile, ...]:
    """Return the files that exist."""
    return tuple(
        EngineFile(path, content) for path, content in contents.items() if content is not None
    )


def unreadable(path: Path, why: str) -> RuntimeInstallationError:
    """Return the error for a file that cannot be read as its engine reads it."""
    return RuntimeInstallationError(f"configuration {path} cannot be changed: {why}")
