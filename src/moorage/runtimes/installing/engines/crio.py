"""CRI-O's configuration: a drop-in for each handler. Pure.

CRI-O reads its main file, then all files of its drop-in directory by name, and merges their runtime
tables. Source: crio.conf(5), crio.conf.d(5).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from moorage.engine.handlers import HandlerDefinition
from moorage.migrate.rules.handler_files import table as as_table
from moorage.migrate.rules.handler_files import toml_value
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.engines.runtime_tables import (
    EngineFile,
    FileChange,
    applied,
    crio_table,
    merged,
    unreadable,
    write_table,
)

# Imports of containerd's main file: one pattern added at its start, and taken out again. Pure.
#
# A file without `imports` gets a line of its own, one with a list gets another first element; all
# else stays byte for byte. A result counts only if it has the values of before and the pattern, so
# that lines in a multi-line string are left alone.

_MARK = "  # added by `moor runtime`, which removes it with its last handler"
_IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*version[ \t]*=", re.MULTILINE)
_EMPTY = re.compile(r"\s*\]")


def with_import(text: str, pattern: str) -> str | None:
    """Return a text that imports a pattern before all others; None if there is no way.

    Raises TOMLDecodeError if the text is no TOML.
    """
    before = tomllib.loads(text)
    imports = before.get("imports", [])
    if not isinstance(imports, list):
        return None
    wanted = before | {"imports": [pattern, *imports]}
    return next((one for one in _additions(text, pattern) if _values(one) == wanted), None)


def without_import(text: str, pattern: str) -> str:
    """Return a text without what `with_import` added; the same text if that is not found."""
    before = tomllib.loads(text)
    line, imports = _line(pattern), before.get("imports")
    if not isinstance(imports, list) or pattern not in imports:
        return text
    left = [one for one in imports if one != pattern]
    if line in text and not left:
        changed, wanted = text.replace(line, "", 1), {**before}
        wanted.pop("imports")
        return changed if _values(changed) == wanted else text
    element = re.compile(
        rf"(?P<list>^[ \t]*imports[ \t]*=[ \t]*\[){re.escape(toml_value(pattern))}(?:, )?",
        re.MULTILINE,
    )
    for match in element.finditer(text):
        changed = text[: match.start()] + match["list"] + text[match.end() :]
        if _values(changed) == before | {"imports": left}:
            return changed
    return text


def _additions(text: str, pattern: str) -> Iterator[str]:
    for match in _IMPORTS.finditer(text):
        comma = "" if _EMPTY.match(text, match.end()) else ", "
        yield f"{text[: match.end()]}{toml_value(pattern)}{comma}{text[match.end() :]}"
    for match in _VERSION.finditer(text):
        yield f"{text[: match.start()]}{_line(pattern)}{text[match.start() :]}"
    yield _line(pattern) + text


def _values(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _line(pattern: str) -> str:
    return f"imports = [{toml_value(pattern)}]{_MARK}\n"


# After the files of packages, which begin with 10 and 50; the last one of a handler counts.
_PREFIX = "90-moorage-"
_SUFFIX = ".conf"
_CREATED = "# Written by `moor runtime`, which removes it too.\n"
_KEYS = ("crio", "runtime", "runtimes")


class CrioConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """CRI-O's files in the order in which they are read; `directory` is that of the drop-ins.

    `offered` are the handlers that the engine lists, among which are those built in.
    """

    directory: Path
    files: tuple[EngineFile, ...]
    offered: frozenset[str] = frozenset()

    def handlers(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the table of each handler. `Configuration` documents the methods."""
        found: dict[str, Any] = {}
        for file in self.files:
            runtime = as_table(as_table(file.document.get("crio")).get("runtime"))
            found = merged(found, as_table(runtime.get("runtimes")))
        return found

    def written(self) -> frozenset[str]:
        return frozenset(
            file.path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            for file in self.files
            if self._is_ours(file.path)
        )

    def with_handler(self, definition: HandlerDefinition, program: str) -> tuple[FileChange, ...]:
        name, before = definition.name, self.handlers()
        if name in {*before, *self.offered} and name not in self.written():
            raise RuntimeInstallationError(
                f"handler {name} is there already, and `moor runtime` did not write it: give "
                "another name"
            )
        table = crio_table(definition, program)
        text = f"{_CREATED}{write_table((*_KEYS, name), table)}"
        path = self._drop_in(name)
        changes = (FileChange(path, self._content(path), text.encode()),)
        self._check(changes, {**before, name: table})
        return changes

    def without_handler(self, handler: str) -> tuple[FileChange, ...]:
        if handler not in self.written():
            raise RuntimeInstallationError(
                f"there is no handler {handler} that `moor runtime` wrote into the "
                f"configuration of CRI-O ({self.directory})"
            )
        path, wanted = self._drop_in(handler), dict(self.handlers())
        wanted.pop(handler, None)
        changes = (FileChange(path, self._content(path), None),)
        self._check(changes, wanted)
        return changes

    def _check(self, changes: tuple[FileChange, ...], wanted: Mapping[str, Any]) -> None:
        files = applied(self.files, changes)
        if msgspec.structs.replace(self, files=files).handlers() != wanted:
            raise unreadable(
                changes[0].path, "another file has a table of this handler; remove it by hand"
            )

    def _is_ours(self, path: Path) -> bool:
        return path.parent == self.directory and path.name.startswith(_PREFIX)

    def _drop_in(self, name: str) -> Path:
        return self.directory / f"{_PREFIX}{name}{_SUFFIX}"

    def _content(self, path: Path) -> bytes | None:
        return next((file.content for file in self.files if file.path == path), None)
