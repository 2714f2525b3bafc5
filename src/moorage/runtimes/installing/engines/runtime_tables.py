"""Runtime tables: a handler's definition in the words of containerd and of CRI-O. Pure.

The inverse of `moorage.migrate.rules`, which reads these tables. What an engine cannot
express is refused, since a handler that leaves it out would be another one.
Source: containerd docs/cri/config.md; crio.conf(5).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from moorage.engine.handlers import HandlerDefinition, OciOptions, RunscOptions, ShimOptions
from moorage.engine.handlers.runtimes import RUNC_SHIM
from moorage.migrate.rules.handler_files import toml_key, toml_value
from moorage.runtimes.installing.downloads import RuntimeInstallationError

# Changes of files: what a configuration file has before and after. Pure.


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


# TOML tables and their keys: written for an engine, inserted into its files, and found again.


def write_table(path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return a table and the tables in it, each with its header."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items()]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, Mapping):
            text += write_table((*path, key), value)
    return text


def merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two documents as one: tables by key at every depth, `other`'s values first."""
    result = dict(base)
    for key, value in other.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


# Configuration of an engine: the seam between the engines' formats and the installation.


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


_RUNSC_V1 = "io.containerd.runsc.v1"
_SHIMS = {_RUNSC_V1: "containerd-shim-runsc-v1"}


def containerd_table(
    definition: HandlerDefinition, program: str, *, uses_systemd: bool
) -> dict[str, Any]:
    """Return containerd's table of a handler.

    `uses_systemd` is the cgroup driver of the engine's other handlers. Raises
    RuntimeInstallationError.
    """
    options = definition.options
    if isinstance(options, OciOptions):
        _refuse(definition, "containerd", global_arguments=options.global_arguments)
        chosen: dict[str, Any] = {"BinaryName": program} | _runc_options(options)
        if uses_systemd:
            chosen["SystemdCgroup"] = True
        return _common(definition, {"runtime_type": RUNC_SHIM, "options": chosen})
    if isinstance(options, RunscOptions):
        raise RuntimeInstallationError(
            f"handler {definition.name}: containerd runs gVisor by its shim: give "
            f"--program with the path of {_SHIMS[_RUNSC_V1]}, --adapter shim and "
            f"--option runtime_type={_RUNSC_V1}"
        )
    table: dict[str, Any] = {"runtime_type": options.runtime_type, "runtime_path": program}
    chosen = _runc_options(options)
    if options.runtime_binary:
        chosen["BinaryName"] = options.runtime_binary
    if options.config_path:
        chosen["ConfigPath"] = options.config_path
    if options.options_type_url:
        chosen["TypeUrl"] = options.options_type_url
    if uses_systemd and options.runtime_type == RUNC_SHIM:
        chosen["SystemdCgroup"] = True
    if chosen:
        table["options"] = chosen
    return _common(definition, table)


def crio_table(definition: HandlerDefinition, program: str) -> dict[str, Any]:
    """Return CRI-O's table of a handler. Raises RuntimeInstallationError."""
    options = definition.options
    root = {"runtime_root": options.root} if options.root else {}
    if isinstance(options, ShimOptions):
        _refuse(
            definition, "CRI-O", runtime_binary=options.runtime_binary,
            options_type_url=options.options_type_url, no_pivot_root=options.no_pivot_root,
            no_new_keyring=options.no_new_keyring,
        )  # fmt: skip
        table = {"runtime_path": program, "runtime_type": "vm"} | root
        if options.config_path:
            table["runtime_config_path"] = options.config_path
    else:
        flags = (
            {"no_pivot_root": options.no_pivot_root, "no_new_keyring": options.no_new_keyring}
            if isinstance(options, OciOptions)
            else {
                "platform": options.platform, "network": options.network,
                "ignore_cgroups": options.ignore_cgroups, "debug_log": options.debug_log,
            }
        )  # fmt: skip
        _refuse(definition, "CRI-O", global_arguments=options.global_arguments, **flags)
        table = {"runtime_path": program, "runtime_type": "oci"} | root
    _refuse(
        definition, "CRI-O", annotations=definition.annotations,
        container_annotations=definition.container_annotations, snapshotter=definition.snapshotter,
    )  # fmt: skip
    if definition.privileged_without_host_devices:
        return table | {"privileged_without_host_devices": True}
    return table


def _runc_options(options: OciOptions | ShimOptions) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if options.root:
        chosen["Root"] = options.root
    if options.no_pivot_root:
        chosen["NoPivotRoot"] = True
    if options.no_new_keyring:
        chosen["NoNewKeyring"] = True
    return chosen


def _common(definition: HandlerDefinition, table: dict[str, Any]) -> dict[str, Any]:
    common: dict[str, Any] = {}
    if definition.annotations:
        common["pod_annotations"] = list(definition.annotations)
    if definition.container_annotations:
        common["container_annotations"] = list(definition.container_annotations)
    if definition.snapshotter:
        common["snapshotter"] = definition.snapshotter
    if definition.privileged_without_host_devices:
        common["privileged_without_host_devices"] = True
    return table | common


def _refuse(definition: HandlerDefinition, engine: str, **settings: object) -> None:
    given = [key for key, value in settings.items() if value not in (None, False, (), "")]
    if given:
        raise RuntimeInstallationError(
            f"handler {definition.name}: {engine} has no {', '.join(given)}: leave the option out"
        )
