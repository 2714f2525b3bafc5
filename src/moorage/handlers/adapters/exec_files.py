"""The short-lived files of one command that is started in a task."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from moorage.handlers.adapters.adapter import AdapterError


@dataclass(frozen=True, slots=True)
class ExecFiles:
    """Files with one name in front, in a directory whose path is short: one is a socket's."""

    name: Path

    @classmethod
    def write(cls, directory: Path, process: Mapping[str, Any], *, has_terminal: bool) -> Self:
        """The files for an OCI `process` object. Raises OSError."""
        files = cls(directory / secrets.token_hex(8))
        files.process.write_bytes(msgspec.json.encode({**process, "terminal": has_terminal}))
        return files

    @property
    def process(self) -> Path:
        return self.name.with_suffix(".json")

    @property
    def pid_file(self) -> Path:
        return self.name.with_suffix(".pid")

    @property
    def inner_pid_file(self) -> Path:
        """Of the process as its own kernel counts, for runtimes that have one."""
        return self.name.with_suffix(".inner")

    @property
    def console(self) -> Path:
        return self.name.with_suffix(".sock")

    def pid(self) -> int:
        """The process's id. Raises AdapterError when the runtime wrote none."""
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise AdapterError("the runtime did not tell the command's process id") from error

    def remove(self) -> None:
        for file in (self.process, self.pid_file, self.inner_pid_file, self.console):
            file.unlink(missing_ok=True)
