"""Layers of configurations: files that an engine or Compose reads together with another one.

`references` names what a file reads besides itself; `engine_groups` merges files in the engine's
own order, so that a default of one file and its handler of another meet. Sources: containerd's
`cmd/containerd/server/config` (a queue of imports, a later file wins; containerd 1 replaces the
whole table of a plugin, containerd 2 merges), crio.conf.d(5) and containers.conf(5) (drop-ins in
the order of their names, a handler as a whole).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from moorage.migrate.rules.changes import Finding, Severity
from moorage.migrate.rules.compose import compose_references
from moorage.migrate.rules.containerd import (
    FORMER_TABLES,
    config_version,
    containerd_default,
    containerd_handlers,
    containerd_settings,
    ignored_tables,
    imports_of,
)
from moorage.migrate.rules.crio import crio_handlers, heirs_without_default
from moorage.migrate.rules.docker import docker_handlers
from moorage.migrate.rules.formats import Format, Parsed
from moorage.migrate.rules.handler_files import FormerHandler, command_line, table, text
from moorage.migrate.rules.podman import podman_handlers

_DROP_INS = {Format.CRIO: "crio.conf", Format.PODMAN: "containers.conf"}
_TABLES: dict[Format, tuple[tuple[str, ...], str]] = {
    Format.CRIO: (("crio", "runtime"), "default_runtime"),
    Format.PODMAN: (("engine",), "runtime"),
    Format.DOCKER: ((), "default-runtime"),
}
_HANDLERS_OF = {
    Format.CRIO: crio_handlers,
    Format.PODMAN: podman_handlers,
    Format.DOCKER: docker_handlers,
}
# Handlers that an engine has without a table, found in $PATH by their names.
_BUILT_IN = {
    Format.CONTAINERD: ("runc",),
    Format.CRIO: ("crun", "runc"),
    Format.DOCKER: ("runc",),
    Format.PODMAN: ("crun", "runc", "kata", "runsc", "youki", "krun", "ocijail"),
}
# What is read of the table that has an engine's handlers.
_READ = {
    Format.CONTAINERD: frozenset({"runtimes", "default_runtime_name", *FORMER_TABLES}),
    Format.CRIO: frozenset({"runtimes", "default_runtime", "runtime_untrusted_workload"}),
    Format.DOCKER: frozenset({"runtimes", "default-runtime"}),
    Format.PODMAN: frozenset({"runtimes", "runtime"}),
}
_MOST_NAMED = 20
_MERGING_SINCE = 3
"""Configuration version of containerd 2.0, the first that merges the tables of a plugin."""


class Layer(msgspec.Struct, frozen=True):
    """A file that was read: its name for findings, and its absolute path, empty if unknown."""

    name: str
    path: str
    parsed: Parsed

    @property
    def document(self) -> dict[str, Any]:
        """Return the document of an engine's configuration."""
        document: dict[str, Any] = self.parsed.documents[0]
        return document


class EngineGroup(msgspec.Struct, frozen=True):
    """Files that one engine reads together, in its order, and the handlers that come of them.

    `origins` are the names of the files that have a handler's table, by its name.
    """

    layers: Sequence[Layer]
    handlers: Sequence[FormerHandler]
    origins: Mapping[str, tuple[str, ...]]
    findings: Sequence[Finding]

    @property
    def name(self) -> str:
        """Return the name of the first file."""
        return self.layers[0].name


def references(path: str, parsed: Parsed) -> tuple[str, ...]:
    """Return the absolute paths and patterns that a file reads besides itself, in order."""
    if parsed.format is Format.CONTAINERD:
        imports = imports_of(parsed.documents[0])
        return tuple(absolute(path, imported) for imported in imports)
    if (base := _DROP_INS.get(parsed.format)) and posixpath.basename(path) == base:
        return (f"{path}.d/*",)
    if parsed.format is Format.COMPOSE:
        return compose_references(path, parsed.documents[0])
    return ()


def absolute(path: str, referred: str) -> str:
    """Return a path that a file refers to, seen from that file's directory."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), referred))


def engine_groups(layers: Sequence[Layer]) -> Iterator[EngineGroup]:
    """Yield the engines' configurations of files, merged, in the order of their first files."""
    for format_ in (Format.CONTAINERD, *_TABLES):
        chosen = [layer for layer in layers if layer.parsed.format is format_]
        if format_ is Format.CONTAINERD:
            yield from _containerd_groups(chosen)
            continue
        for group in _drop_in_groups(chosen, _DROP_INS.get(format_, "")):
            yield _merged_group(format_, group)


# containerd.


def _containerd_groups(layers: Sequence[Layer]) -> Iterator[EngineGroup]:
    by_path = {layer.path or layer.name: layer for layer in layers}
    imported = {
        path for layer in layers for path in _imported(layer, by_path) if path != layer.path
    }
    roots = [layer for layer in layers if (layer.path or layer.name) not in imported]
    left = dict.fromkeys(by_path)
    for root in (*roots, *layers):
        if root not in roots and (root.path or root.name) not in left:
            continue
        group: dict[str, Layer] = {}
        pending = [root.path or root.name]
        while pending:
            path = pending.pop(0)
            if path not in group:
                group[path] = by_path[path]
                pending += _imported(by_path[path], by_path)
            left.pop(path, None)
        yield _containerd_group(list(group.values()), by_path)


def _imported(layer: Layer, by_path: Mapping[str, Layer]) -> list[str]:
    paths: list[str] = []
    for reference in references(layer.path, layer.parsed):
        paths += _matching(reference, by_path)
    return paths


def _matching(reference: str, paths: Mapping[str, Any]) -> list[str]:
    if "*" not in reference:
        return [reference] if reference in paths else []
    return sorted(path for path in paths if PurePosixPath(path).match(reference))


def _containerd_group(layers: Sequence[Layer], by_path: Mapping[str, Layer]) -> EngineGroup:
    findings = [finding for layer in layers for finding in _unread(layer, by_path)]
    settings = [containerd_settings(layer.document) for layer in layers]
    findings += _unread_settings(Format.CONTAINERD, layers, settings)
    merged: dict[str, Any] = {}
    for above in settings:
        merged = _merged(merged, above)
    root = layers[0]
    handlers, name = containerd_handlers(merged), containerd_default(merged)
    replaced: dict[str, Any] = next((above for above in reversed(settings) if above), {})
    if (
        0 < config_version(root.document) < _MERGING_SINCE
        and (other := containerd_default(replaced)) != name
        and len(layers) > 1
    ):
        handlers = [msgspec.structs.replace(handler, is_default=False) for handler in handlers]
        findings.append(
            Finding(
                Severity.REFUSED,
                root.name,
                f"its default runtime is {name!r} for containerd 2, which merges imports, and "
                f"{other or 'runc'!r} for containerd 1, where an import replaces the whole table; "
                "state it in the last import",
            )
        )
    else:
        handlers, refused = _with_default(Format.CONTAINERD, root, handlers, name)
        findings += refused
    return EngineGroup(layers, handlers, _origins(layers, settings), findings)


def _unread(layer: Layer, by_path: Mapping[str, Layer]) -> Iterator[Finding]:
    for ignored in ignored_tables(layer.document):
        version = config_version(layer.document)
        yield Finding(
            Severity.SKIPPED,
            layer.name,
            f"{ignored} is not read: containerd ignores it in a file of version {version}",
        )
    own = f"{posixpath.dirname(layer.path)}/"
    for imported in imports_of(layer.document):
        reference = absolute(layer.path, imported)
        if _matching(reference, by_path) or ("*" in reference and reference.startswith(own)):
            continue
        yield Finding(
            Severity.SKIPPED,
            layer.name,
            f"its import {imported} is not read: it does not exist below the files that were "
            "named; name it too",
        )


# CRI-O, Podman and Docker.


def _drop_in_groups(layers: Sequence[Layer], base: str) -> list[list[Layer]]:
    """Return files and the drop-ins of the directory beside them, each group in order."""
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        directory = posixpath.dirname(layer.path)
        is_drop_in = bool(base) and posixpath.basename(directory) == f"{base}.d"
        key = directory.removesuffix(".d") if is_drop_in else layer.path or layer.name
        groups.setdefault(key, []).append(layer)
        groups[key].sort(key=lambda one: (one.path != key, one.path))
    return list(groups.values())


def _merged_group(format_: Format, layers: Sequence[Layer]) -> EngineGroup:
    path, default = _TABLES[format_]
    settings = [_at(layer.document, path) for layer in layers]
    merged: dict[str, Any] = {}
    for above in settings:
        # A handler is replaced as a whole.
        runtimes = table(merged.get("runtimes")) | table(above.get("runtimes"))
        merged = merged | above | ({"runtimes": runtimes} if runtimes else {})
    document = merged
    for key in reversed(path):
        document = {key: document}
    root = layers[0]
    handlers, findings = _with_default(
        format_, root, _HANDLERS_OF[format_](document), text(merged.get(default))
    )
    heirs = heirs_without_default(document) if format_ is Format.CRIO else []
    handlers = [handler for handler in handlers if handler.name not in heirs]
    findings += [
        Finding(
            Severity.REFUSED,
            root.name,
            f"handler {name}: it inherits the default runtime, which no file that was read names; "
            "give the file with default_runtime too",
        )
        for name in heirs
    ]
    findings += _unread_settings(format_, layers, settings)
    return EngineGroup(layers, handlers, _origins(layers, settings), findings)


def _at(document: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for key in path:
        document = table(document.get(key))
    return document


# Common.


def _with_default(
    format_: Format, root: Layer, handlers: Sequence[FormerHandler], name: str
) -> tuple[list[FormerHandler], list[Finding]]:
    """Return handlers with the default one among them, or why there is none."""
    if not name or any(handler.name == name for handler in handlers):
        return list(handlers), []
    if name in _BUILT_IN[format_]:
        return [*handlers, command_line(name, name, is_default=True)], []
    reason = (
        f"its default runtime {name!r} has no table in the files that were read; give the file "
        "that has it too, else pods without a class would run on another one"
    )
    return list(handlers), [Finding(Severity.REFUSED, root.name, reason)]


def _unread_settings(
    format_: Format, layers: Sequence[Layer], settings: Sequence[dict[str, Any]]
) -> Iterator[Finding]:
    """Yield for each file its settings that are about no handler, except empty ones."""
    for layer, own in zip(layers, settings, strict=True):
        names = sorted(
            key
            for key, value in own.items()
            if key not in _READ[format_] and value not in ("", 0, [], {})
        )
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield Finding(
                Severity.NOTE,
                layer.name,
                "not read, since they are about all pods of the engine: "
                f"{', '.join(names[:_MOST_NAMED])}{more}",
            )


def _origins(
    layers: Sequence[Layer], settings: Sequence[dict[str, Any]]
) -> dict[str, tuple[str, ...]]:
    origins: dict[str, tuple[str, ...]] = {}
    for layer, own in zip(layers, settings, strict=True):
        for name in table(own.get("runtimes")):
            origins[name] = (*origins.get(name, ()), posixpath.basename(layer.name))
    return origins


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return two tables as one: of `above` comes what is not empty, tables key by key."""
    result = dict(below)
    for key, value in above.items():
        present = result.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            result[key] = _merged(present, value)
        elif key not in result or value not in ("", 0, [], {}):
            result[key] = value
    return result
