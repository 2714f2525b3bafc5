"""Output files of a migration: what it writes besides its changes to the given files.

A file that exists is only added to, and an object or handler file that exists stays as it is, so
that edits of the user's survive and a second run adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.api.yaml_text import dump
from moorage.api.yaml_values import YamlError, parse_documents
from moorage.migrate.rules.toml_text import TomlError, parse_toml

CLASSES = "runtimeclasses.yaml"
POLICIES = "policies.yaml"
PATCHES = "patches.yaml"
RENAMES = "renames.toml"
HANDLERS = "handlers.d"

_RENAMES_HEAD = """\
# Handlers that `moor migrate` renamed: old name = new name. Later runs read this table.
"""


class OutputError(ValueError):
    """An output file of an earlier run cannot be read; the message names it."""


class Outputs:
    """Texts of the output files by their name in the output directory."""

    def __init__(self, existing: Mapping[str, str]) -> None:
        self._before = dict(existing)
        self._after = dict(existing)

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects that exist already. Raises OutputError."""
        objects: list[dict[str, Any]] = []
        for name in (CLASSES, POLICIES, PATCHES):
            try:
                documents = parse_documents(self._before.get(name, ""))
            except YamlError as error:
                raise OutputError(f"{name}: {error}; correct or remove the file") from error
            objects += [document for document in documents if isinstance(document, dict)]
        return objects

    def renames(self) -> dict[str, str]:
        """Return the rename table of earlier runs. Raises OutputError."""
        try:
            table = parse_toml(self._before.get(RENAMES, ""))
        except TomlError as error:
            raise OutputError(f"{RENAMES}: {error}; correct or remove the file") from error
        if not all(isinstance(new, str) for new in table.values()):
            raise OutputError(f'{RENAMES}: every line must be "OLD" = "NEW"')
        return table

    def add_object(self, name: str, document: dict[str, Any]) -> None:
        """Add an object to the end of a YAML file."""
        text = self._after.get(name, "")
        if text and not text.endswith("\n"):
            text += "\n"
        self._after[name] = f"{text}---\n{dump(document)}" if text else dump(document)

    def add_handler(self, name: str, text: str) -> bool:
        """Add a handler file; return whether it now has this text.

        False where one of that name but with another text is there, and stays.
        """
        path = f"{HANDLERS}/{name}.toml"
        return self._after.setdefault(path, text) == text

    def add_renames(self, renames: Mapping[str, str]) -> None:
        """Add lines to the rename table for those that it does not have."""
        known = self.renames()
        lines = [
            f"{_quoted(old)} = {_quoted(new)}\n" for old, new in renames.items() if old not in known
        ]
        if lines:
            text = self._after.get(RENAMES, "") or _RENAMES_HEAD
            if not text.endswith("\n"):
                text += "\n"
            self._after[RENAMES] = text + "".join(lines)

    def changed(self) -> dict[str, str]:
        """Return the files that differ from existing ones, the rename table first."""
        names = sorted(self._after, key=lambda name: (name != RENAMES, name))
        return {
            name: self._after[name] for name in names if self._after[name] != self._before.get(name)
        }

    def before(self, name: str) -> str | None:
        """Return a file's content, None if it does not exist."""
        return self._before.get(name)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
