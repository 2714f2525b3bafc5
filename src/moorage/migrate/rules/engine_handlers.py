"""Engine configurations of all kinds: the edits that rename handlers in place.

containerd and CRI-O are asked by the handler of a class, so that a renamed handler is renamed in
their tables too. Docker's and Podman's names are used by their own commands and stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.migrate.rules.containerd import containerd_table, renamed_tables
from moorage.migrate.rules.formats import Format
from moorage.migrate.rules.toml_edits import Keys, TomlEdits

_CRIO_TABLE: Keys = ("crio", "runtime")


class EngineConfiguration(msgspec.Struct, frozen=True):
    """A file of a configuration.

    `runtimes` is the path of the table whose keys are their names, `default` that of the key whose
    text names the default one; both are empty where names stay. `former` are tables that moved,
    with their name in `runtimes`.
    """

    document: dict[str, Any]
    runtimes: Keys = ()
    default: Keys = ()
    former: Mapping[Keys, str] = {}

    def edits(self, renames: Mapping[str, str]) -> TomlEdits:
        """Return the edits that rename the handlers in the configuration, and move its tables."""
        if not self.runtimes:
            return TomlEdits()
        tables = {
            (*self.runtimes, old): (*self.runtimes, renames[old])
            for old in _keys(self.document, self.runtimes)
            if old in renames
        }
        tables |= {path: (*self.runtimes, name) for path, name in self.former.items()}
        default = _value(self.document, self.default)
        texts = {}
        if isinstance(default, str) and default in renames:
            texts[self.default] = renames[default]
        return TomlEdits(tables, texts)


def engine_of(format_: Format, documents: Sequence[Any]) -> EngineConfiguration | None:
    """Return where an engine's file has its handlers; None for other formats."""
    if format_ in (Format.DOCKER, Format.PODMAN):
        return EngineConfiguration(documents[0])
    if format_ is Format.CRIO:
        return EngineConfiguration(
            documents[0],
            (*_CRIO_TABLE, "runtimes"),
            (*_CRIO_TABLE, "default_runtime"),
        )
    if format_ is not Format.CONTAINERD:
        return None
    path = containerd_table(documents[0])
    if path is None:
        return EngineConfiguration(documents[0])
    return EngineConfiguration(
        documents[0],
        (*path, "runtimes"),
        (*path, "default_runtime_name"),
        renamed_tables(documents[0]),
    )


def _value(document: Any, path: Keys) -> Any:
    for step in path:
        if not isinstance(document, dict):
            return None
        document = document.get(step)
    return document


def _keys(document: Any, path: Keys) -> list[str]:
    value = _value(document, path)
    return list(value) if isinstance(value, dict) else []
