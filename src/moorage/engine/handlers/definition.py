"""Handler definition file: `handlers.d/NAME.toml`, parsed strictly.

    adapter = "oci"             # or "runsc", or "shim"
    binary = "/usr/bin/crun"    # a bare name is looked up on the search path
    [options]                   # adapter-specific

NAME is the handler that a RuntimeClass names. Every problem with a file is one DefinitionError with
the file, key, line and remedy; nothing is guessed and no key is ignored.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from moorage.api.names import dns_label_errors
from moorage.api.quantity import parse as parse_quantity
from moorage.engine.handlers.runtimes import RUNC_SHIM

SUFFIX = ".toml"
BUILTIN_SECCOMP = "builtin"
UNCONFINED_SECCOMP = "unconfined"
_DEFAULT_RUNTIME = "runc"
# A guest boots in 1 to 5 s with KVM, and in up to 145 s in software; Kata's own limit is 60 s.
_GUEST_S, _PROCESS_S = 150, 30
_GUEST_STOP_S, _PROCESS_STOP_S = 30.0, 5.0

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Path = Annotated[str, msgspec.Meta(pattern="^/")]
_Platform = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9.]+)?$")]
_Seccomp = Annotated[str, msgspec.Meta(pattern=f"^(/.*|{BUILTIN_SECCOMP}|{UNCONFINED_SECCOMP})$")]

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

_PLACE = re.compile(r" - at `\$\.?(?P<place>.*)`$")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_MISSING_KEY = re.compile(r"Object missing required field `(?P<key>.*)`")
_TOML_PLACE = re.compile(r" \(at line (?P<line>\d+), column \d+\)$")


class AdapterKind(StrEnum):
    """Kind of adapter: runc-compatible command line, runsc, or containerd shim."""

    OCI = "oci"
    RUNSC = "runsc"
    SHIM = "shim"


class CgroupDriver(StrEnum):
    """Cgroup driver of a handler's containers."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class OciOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="oci"):
    """Options of `adapter = "oci"`.

    `root` is the runtime's state directory; None: the engine's default.
    """

    root: _Path | None = None
    global_arguments: tuple[_Text, ...] = ()
    no_pivot_root: bool = False
    no_new_keyring: bool = False


class RunscOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="runsc"):
    """Options of `adapter = "runsc"`: runsc flags of the same names."""

    root: _Path | None = None
    global_arguments: tuple[_Text, ...] = ()
    platform: _Text | None = None
    network: _Text | None = None
    ignore_cgroups: bool | None = None
    debug_log: _Path | None = None


class ShimOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="shim"):
    """Options of `adapter = "shim"`.

    `runtime_binary`, `root`, `no_pivot_root` and `no_new_keyring` apply to runc's shim; other shims
    read `config_path`, whose type `options_type_url` names. `needs_sandbox` says that a pod needs a
    sandbox task before its containers, as a virtual machine does. `start_timeout_s` is how long the
    shim may take to create and to start a task.
    """

    runtime_type: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")]
    config_path: _Path | None = None
    options_type_url: _Text | None = None
    runtime_binary: _Text | None = None
    root: _Path | None = None
    no_pivot_root: bool = False
    no_new_keyring: bool = False
    needs_sandbox: bool = True
    start_timeout_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] | None = None

    @property
    def is_virtual_machine(self) -> bool:
        """Return whether tasks run in a guest: the shim is not runc's, and needs a sandbox."""
        return self.needs_sandbox and self.runtime is None

    @property
    def start_deadline_s(self) -> float:
        """Return the deadline of creating and of starting a task."""
        return float(self.start_timeout_s or (_GUEST_S if self.is_virtual_machine else _PROCESS_S))

    @property
    def stop_deadline_s(self) -> float:
        """Return the deadline of a shim's end, which returns when a guest has ended."""
        return _GUEST_STOP_S if self.is_virtual_machine else _PROCESS_STOP_S

    @property
    def runtime(self) -> str | None:
        """Return the runtime that runc's shim drives, as it is spelled; None for other shims."""
        if self.runtime_type != RUNC_SHIM:
            return None
        return self.runtime_binary or _DEFAULT_RUNTIME


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Overhead of a pod with this handler: a hint for `RuntimeClass.overhead`."""

    cpu: _Text | None = None
    memory: _Text | None = None


Options = OciOptions | RunscOptions | ShimOptions

_OPTIONS: dict[AdapterKind, type[OciOptions | RunscOptions | ShimOptions]] = {
    AdapterKind.OCI: OciOptions,
    AdapterKind.RUNSC: RunscOptions,
    AdapterKind.SHIM: ShimOptions,
}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    adapter: AdapterKind
    binary: _Text
    options: dict[str, Any] = {}
    cgroup_driver: CgroupDriver | None = None
    platform: _Platform | None = None
    annotations: tuple[_Text, ...] = ()
    container_annotations: tuple[_Text, ...] = ()
    default_seccomp: _Seccomp = BUILTIN_SECCOMP
    snapshotter: _Text | None = None
    privileged_without_host_devices: bool = False
    enabled: bool = True
    default: bool = False
    overhead: Overhead = Overhead()


class HandlerDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed handler file.

    `annotations` are globs of pod annotations that are passed to the runtime,
    `container_annotations` those of container annotations; `platform` is the platform of images,
    `OS/ARCHITECTURE`, None for the host's; `cgroup_driver` is None for the engine's. `is_default`
    makes it the handler of pods without a RuntimeClass.
    """

    name: str
    path: Path
    adapter: AdapterKind
    binary: str
    options: Options
    cgroup_driver: CgroupDriver | None = None
    platform: str | None = None
    annotations: tuple[str, ...] = ()
    container_annotations: tuple[str, ...] = ()
    default_seccomp: str = BUILTIN_SECCOMP
    snapshotter: str | None = None
    privileged_without_host_devices: bool = False
    is_enabled: bool = True
    is_default: bool = False
    overhead: Overhead = Overhead()


class DefinitionError(Exception):
    """A handler file is invalid. `line` is 0 where no line applies."""

    def __init__(self, path: Path, line: int, problem: str, remedy: str) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(f"{place}: {problem}; {remedy}")
        self.path = path
        self.line = line
        self.problem = problem
        self.remedy = remedy


def parse_definition(path: Path, content: bytes) -> HandlerDefinition:
    """Parse a handler file with this path and content. Raises DefinitionError."""
    name = path.name.removesuffix(SUFFIX)
    if errors := dns_label_errors(name):
        raise DefinitionError(
            path, 0, f"{name!r} cannot be a handler's name: {errors[0]}", "rename the file"
        )
    text, document = _read(path, content)
    file = _convert(path, text, document, _File, "")
    options = _convert(path, text, file.options, _OPTIONS[file.adapter], "options")
    _check_overhead(path, text, file.overhead)
    return HandlerDefinition(
        name=name,
        path=path,
        adapter=file.adapter,
        binary=file.binary,
        options=options,
        cgroup_driver=file.cgroup_driver,
        platform=file.platform,
        annotations=file.annotations,
        container_annotations=file.container_annotations,
        default_seccomp=file.default_seccomp,
        snapshotter=file.snapshotter,
        privileged_without_host_devices=file.privileged_without_host_devices,
        is_enabled=file.enabled,
        is_default=file.default,
        overhead=file.overhead,
    )


def _read(path: Path, content: bytes) -> tuple[str, dict[str, Any]]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DefinitionError(path, line, "it is not UTF-8 text", "write it again") from error
    try:
        return text, tomllib.loads(text)
    except RecursionError as error:
        problem = "its values are nested too deeply"
        raise DefinitionError(path, 1, problem, "write `key = value` lines") from error
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.search(str(error))
        line = int(match["line"]) if match else text.count("\n") + 1
        problem = _TOML_PLACE.sub("", str(error))
        raise DefinitionError(
            path, line, f"it is not TOML: {problem}", "write `key = value` lines"
        ) from error


def _convert(
    path: Path, text: str, document: dict[str, Any], kind: type[_Kind], table: str
) -> _Kind:
    """Convert a parsed TOML table to a structure. Raises DefinitionError with its key and line."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _validation_error(path, text, str(error), kind, table) from error


def _validation_error(
    path: Path, text: str, message: str, kind: type[msgspec.Struct], table: str
) -> DefinitionError:
    """Return a DefinitionError for a msgspec message, with the key and the line."""
    match = _PLACE.search(message)
    place = match["place"] if match else ""
    message = _PLACE.sub("", message)
    inner = ".".join(filter(None, (table, place.partition("[")[0])))
    if missing := _MISSING_KEY.match(message):
        key = missing["key"]
        where = f" in [{inner}]" if inner else ""
        return DefinitionError(path, 0, f"the key `{key}` is missing{where}", f"add `{key} = …`")
    if unknown := _UNKNOWN_KEY.match(message):
        key = unknown["key"]
        allowed = ", ".join(_keys(kind, place))
        return DefinitionError(
            path, _line_of(text, inner, key), f"unknown key `{key}`", f"use one of {allowed}"
        )
    holder, _, key = inner.rpartition(".")
    return DefinitionError(
        path, _line_of(text, holder, key), f"`{key}`: {message}", "correct its value"
    )


def _keys(kind: type[msgspec.Struct], place: str) -> tuple[str, ...]:
    """Return the keys of a structure, or of the one in its field `place`."""
    for field in msgspec.structs.fields(kind):
        if field.name == place and isinstance(field.type, type):
            return _keys(field.type, "")
    return kind.__struct_fields__


def _line_of(text: str, table: str, key: str) -> int:
    """Return the line (from 1) that sets a key of a table; 0 if it is not found in that syntax."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            current = header[1].strip()
            if not table and current == key:
                return number
        elif current == table and re.match(rf"\s*\"?{re.escape(key)}\"?\s*[=.]", line):
            return number
    return 0


def _check_overhead(path: Path, text: str, overhead: Overhead) -> None:
    for key, value in (("cpu", overhead.cpu), ("memory", overhead.memory)):
        if value is None:
            continue
        try:
            parse_quantity(value)
        except ValueError as error:
            raise DefinitionError(
                path,
                _line_of(text, "overhead", key),
                f"`{key}`: {value!r} is not a quantity",
                "write one such as `250m` or `130Mi`",
            ) from error
