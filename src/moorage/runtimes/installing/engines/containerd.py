"""containerd's configuration: handlers in drop-ins of 2.x, in marked blocks of 1.x. Pure.

What was measured with 1.6.20 and 2.4.2 (1.7 is read in its source):

- 1.x replaces a plugin's whole table by that of an imported file: a drop-in with one runtime resets
  the sandbox image, the CNI directories and all other runtimes. So a block is appended to the file
  whose table is in force, and later edits of that file stay in force.
- 2.x merges the tables of all files, so a drop-in has the one runtime.
- Any runtime in the files replaces the built-in one, runc, in 1.x: a block of its own keeps it.
- No version imports a directory by itself: the main file's `imports` must name it.

Source: containerd docs/cri/config.md and docs/man/containerd-config.toml.5.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from moorage.engine.handlers import HandlerDefinition
from moorage.engine.handlers.runtimes import RUNC_SHIM
from moorage.migrate.rules.handler_files import table as as_table
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.engines.crio import with_import, without_import
from moorage.runtimes.installing.engines.runtime_tables import (
    EngineFile,
    FileChange,
    applied,
    containerd_table,
    merged,
    unreadable,
    write_table,
)

_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_LATEST_PLUGIN = _PLUGINS[3]
_GENERATION = re.compile(r"v?(?P<major>\d+)\.(?P<minor>\d+)")
_BUILT_IN = {"runc": {"runtime_type": RUNC_SHIM}}
_BUILT_IN_BLOCK = "built-in runc"
_CREATED = "# Written by `moor runtime`, which removes it with its last handler.\n"
_PREFIX = "moorage-"
_SUFFIX = ".toml"


class ContainerdConfiguration(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """containerd's files in the order in which they are read.

    `main` need not exist. `version` is the engine's, as its `Version` reply says.
    """

    main: Path
    files: tuple[EngineFile, ...]
    version: str

    @cached_property
    def merges(self) -> bool:
        """Whether the tables of imported files are merged: 2.x. Raises if it is neither."""
        match = _GENERATION.match(self.version)
        if match is None or match["major"] not in ("1", "2"):
            raise RuntimeInstallationError(
                f"the configuration of containerd {self.version} is not known here; those of 1.x "
                "and 2.x are"
            )
        return match["major"] == "2"

    @property
    def directory(self) -> Path:
        """Where drop-ins are: a directory of our own, since another one may hold unused files."""
        return self.main.parent / "moorage.d"

    @property
    def _pattern(self) -> str:
        return str(self.directory / f"*{_SUFFIX}")

    def handlers(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the table of each handler. `Configuration` documents the methods."""
        tables = [self._runtimes(file) for file in self.files]
        if self.merges:
            found: dict[str, Any] = dict(_BUILT_IN)
            for one in tables:
                found = merged(found, one or {})
            return found
        owner = self._owner
        return (self._runtimes(owner) if owner is not None else None) or _BUILT_IN

    def written(self) -> frozenset[str]:
        return frozenset(self._places())

    def with_handler(self, definition: HandlerDefinition, program: str) -> tuple[FileChange, ...]:
        name, before = definition.name, self.handlers()
        places = self._places()
        if name in before and name not in places:
            raise RuntimeInstallationError(
                f"handler {name} is there already, and `moor runtime` did not write it: give "
                "another name"
            )
        table = containerd_table(definition, program, uses_systemd=_uses_systemd(before))
        changes = self._dropped_in(name, table) if self.merges else self._in_block(name, table)
        self._check(changes, {**before, name: table})
        return changes

    def without_handler(self, handler: str) -> tuple[FileChange, ...]:
        before, places = dict(self.handlers()), self._places()
        if handler not in places:
            raise RuntimeInstallationError(
                f"there is no handler {handler} that `moor runtime` wrote into the "
                f"configuration of containerd ({self.main})"
            )
        changes = self._without_drop_in(handler) if self.merges else self._without_block(handler)
        before.pop(handler)
        self._check(changes, before)
        return changes

    def _check(self, changes: tuple[FileChange, ...], wanted: Mapping[str, Any]) -> None:
        """Read the result as the engine will. Raises RuntimeInstallationError if it is another."""
        files = applied(self.files, changes)
        result = msgspec.structs.replace(self, files=self._ordered(files))
        try:
            is_as_wanted = result.handlers() == wanted
        except RuntimeInstallationError:
            is_as_wanted = False
        if not is_as_wanted:
            raise unreadable(
                changes[0].path,
                "its form (inline tables, dotted keys, a table of the same name) does not let a "
                "runtime be added or removed in place; do it by hand",
            )

    def _ordered(self, files: tuple[EngineFile, ...]) -> tuple[EngineFile, ...]:
        """Return the files, the main one first, which may be new."""
        return tuple(sorted(files, key=lambda file: file.path != self.main))

    # 2.x: a drop-in for each handler.

    def _drop_in(self, name: str) -> Path:
        return self.directory / f"{_PREFIX}{name}{_SUFFIX}"

    def _dropped_in(self, name: str, table: Mapping[str, Any]) -> tuple[FileChange, ...]:
        path = self._drop_in(name)
        keys = ("plugins", _LATEST_PLUGIN, "containerd", "runtimes", name)
        text = (
            "# Written by `moor runtime`, which removes it too.\n"
            f"version = 3\n\n{write_table(keys, table)}"
        )
        change = FileChange(path, self._content(path), text.encode())
        return (*self._importing(), change)

    def _importing(self) -> tuple[FileChange, ...]:
        """Return the change that has the main file import the drop-ins, none if it does."""
        before = self._content(self.main)
        created = f"{_CREATED}version = 3\n".encode()
        file = EngineFile(self.main, created if before is None else before)
        imports = file.document.get("imports", [])
        if not isinstance(imports, list):
            raise unreadable(self.main, "its `imports` are not a list")
        if self._pattern in imports:
            return ()
        text = with_import(file.text, self._pattern)
        if text is None:
            raise unreadable(self.main, f"add {self._pattern!r} to its `imports` by hand")
        return (FileChange(self.main, before, text.encode()),)

    def _without_drop_in(self, handler: str) -> tuple[FileChange, ...]:
        path = self._drop_in(handler)
        gone = FileChange(path, self._content(path), None)
        others = self.written() - {handler}
        before = self._content(self.main)
        if others or before is None:
            return (gone,)
        file = EngineFile(self.main, before)
        text = without_import(file.text, self._pattern) if file.document else file.text
        after = None if text == f"{_CREATED}version = 3\n" else text.encode()
        # Last, so that the drop-in is gone from an engine that is restarted in between.
        return (gone,) if after == before else (gone, FileChange(self.main, before, after))

    # 1.x: a block in the file whose table is in force.

    @cached_property
    def _owner(self) -> EngineFile | None:
        """The last file with a table of the CRI plugin, which replaces those before it."""
        owners = [file for file in self.files if self._plugin(file) is not None]
        return owners[-1] if owners else None

    def _in_block(self, name: str, table: Mapping[str, Any]) -> tuple[FileChange, ...]:
        owner = self._owner
        if owner is None:
            before = self._content(self.main)
            owner = EngineFile(
                self.main, before if before is not None else f"{_CREATED}version = 2\n".encode()
            )
            if before is not None and not owner.document:
                # An empty file has no version yet, and the table below would be one of version 1.
                raise unreadable(self.main, "write `version = 2` at its start")
            if before is not None:
                self._check_version(owner)
        else:
            before = owner.content
        text = _cut(owner.text, name)
        keys = ("plugins", _PLUGINS[2], "containerd", "runtimes")
        if not self._runtimes(owner):
            (built_in,) = _BUILT_IN
            text += _block(_BUILT_IN_BLOCK, write_table((*keys, built_in), _BUILT_IN[built_in]))
        text += _block(name, write_table((*keys, name), table))
        return (FileChange(owner.path, before, text.encode()),)

    def _without_block(self, handler: str) -> tuple[FileChange, ...]:
        file = self._places()[handler]
        text = _cut(file.text, handler)
        if set(_blocks(text)) == {_BUILT_IN_BLOCK}:
            text = _cut(text, _BUILT_IN_BLOCK)
        after = None if text == f"{_CREATED}version = 2\n" else text.encode()
        return (FileChange(file.path, file.content, after),)

    def _places(self) -> dict[str, EngineFile]:
        """Return the files of the handlers that `moor runtime` wrote."""
        if self.merges:
            return {
                file.path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): file
                for file in self.files
                if file.path.parent == self.directory and file.path.name.startswith(_PREFIX)
            }
        return {
            name: file
            for file in self.files
            for name in _blocks(file.text)
            if name != _BUILT_IN_BLOCK
        }

    def _content(self, path: Path) -> bytes | None:
        return next((file.content for file in self.files if file.path == path), None)

    def _runtimes(self, file: EngineFile) -> dict[str, Any] | None:
        plugin = self._plugin(file)
        if plugin is None:
            return None
        return as_table(as_table(plugin.get("containerd")).get("runtimes"))

    def _plugin(self, file: EngineFile) -> dict[str, Any] | None:
        """Return the CRI plugin's table of a file, None without one."""
        version = self._check_version(file)
        plugins = as_table(file.document.get("plugins"))
        plugin = plugins.get(_PLUGINS[min(version, 3)])
        return plugin if isinstance(plugin, dict) else None

    def _check_version(self, file: EngineFile) -> int:
        version = file.document.get("version", 1)
        if not file.document:
            return 2
        if version not in ((2, 3, 4) if self.merges else (2,)):
            raise unreadable(
                file.path,
                f"its format is version {version}; `containerd config migrate` writes the present "
                "one",
            )
        return int(version)


def _uses_systemd(handlers: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(
        as_table(table.get("options")).get("SystemdCgroup") is True for table in handlers.values()
    )


def _begin(name: str) -> str:
    return f"\n# moor runtime: begin {name}\n"


def _block(name: str, text: str) -> str:
    # The leading newline ends a last line that has none, and goes with the block.
    return f"{_begin(name)}{text}# moor runtime: end {name}\n"


_BLOCK = re.compile(
    r"\n# moor runtime: begin (?P<name>[^\n]+)\n(?:(?!# moor runtime: )[^\n]*\n)*"
    r"# moor runtime: end (?P=name)\n"
)


def _blocks(text: str) -> list[str]:
    return [match["name"] for match in _BLOCK.finditer(text)]


def _cut(text: str, name: str) -> str:
    """Return a text without the block of a name."""
    return _BLOCK.sub(lambda match: "" if match["name"] == name else match[0], text)
