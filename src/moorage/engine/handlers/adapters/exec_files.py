"""Exec files: the short-lived files of one command that is started in a task."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from moorage.engine.handlers.adapters.adapter import AdapterError


@dataclass(frozen=True, slots=True)
class ExecFiles:
    """Files with a common name prefix.

    The directory's path must be short: one of the files is a socket.
    """

    name: Path

    @classmethod
    def write(cls, directory: Path, process: Mapping[str, Any], *, has_terminal: bool) -> Self:
        """Write the OCI `process` document and return its files. Raises OSError."""
        files = cls(directory / secrets.token_hex(8))
        files.process.write_bytes(msgspec.json.encode({**process, "terminal": has_terminal}))
        return files

    @property
    def process(self) -> Path:
        """File with the OCI `process` object."""
        return self.name.with_suffix(".json")

    @property
    def pid_file(self) -> Path:
        """File to which the runtime writes the process ID on the host."""
        return self.name.with_suffix(".pid")

    @property
    def inner_pid_file(self) -> Path:
        """File with the process ID inside the sandbox, for runtimes with their own kernel."""
        return self.name.with_suffix(".inner")

    @property
    def console(self) -> Path:
        """Socket over which the runtime passes the terminal."""
        return self.name.with_suffix(".sock")

    def pid(self) -> int:
        """Return the process ID. Raises AdapterError when the runtime did not write it."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise AdapterError("the runtime did not write the command's process ID") from error

    def remove(self) -> None:
        """Remove the files; missing ones are ignored."""
        for file in (self.process, self.pid_file, self.inner_pid_file, self.console):
            file.unlink(missing_ok=True)
