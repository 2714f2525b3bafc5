"""Programs of another engine's handlers: from its configuration, what each runs, and its version.

containerd shows its configuration in a verbose `Status`; CRI-O shows no table of runtimes there. A
program is asked for its version where it is on this file system, which a container's is not.
Source: containerd docs/cri/config.md; containerd docs/runtime-v2.md (names of shims).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.runtime_group import RuntimeProgram
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, RUNC_SHIM, Runtime
from moorage.engine.handlers.search_path import probe_program, search_path
from moorage.runtimes.probing.evidence import KnownHandler
from moorage.wire.cri import CriClient, CriError, pb

log = Log(__name__)

_CONFIGURATION = "config"
_STATUS_TIMEOUT_S = 10.0
# An engine serialises its whole configuration for it.
_REFRESH_S = 60.0
_MOST_VERSIONS = 64
_MOST_PATH_BYTES = 4096 - 1
_NO_KERNEL = (0, 0)


class _Options(msgspec.Struct, frozen=True):
    binary: str = msgspec.field(default="", name="BinaryName")
    config_path: str = msgspec.field(default="", name="ConfigPath")


class _Runtime(msgspec.Struct, frozen=True, rename="camel"):
    runtime_type: str = ""
    runtime_path: str = ""
    options: _Options | None = None


class _Runtimes(msgspec.Struct, frozen=True):
    runtimes: dict[str, msgspec.Raw]


class _Configuration(msgspec.Struct, frozen=True):
    containerd: _Runtimes


class HandlerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler runs: a program as it is spelled, and its shim's configuration file.

    `definition` is the engine's table of the handler, without its name.
    """

    program: str
    configuration: str = ""
    definition: str = ""


def handler_programs(configuration: str) -> dict[str, HandlerProgram]:
    """Return the program of each handler in containerd's configuration (JSON). Pure.

    Empty for another engine's. A handler whose table is not as containerd's is left out.
    """
    try:
        tables = msgspec.json.decode(configuration, type=_Configuration).containerd.runtimes
    except (msgspec.DecodeError, RecursionError):
        return {}
    programs = {}
    for name, raw in tables.items():
        try:
            table = msgspec.json.decode(raw, type=_Runtime)
            definition = msgspec.json.encode(msgspec.json.decode(raw), order="sorted").decode()
        except (msgspec.DecodeError, RecursionError):
            continue
        options = table.options or _Options()
        program = _program(table, options)
        if program and _is_path(program) and _is_path(options.config_path):
            programs[name] = HandlerProgram(
                program=program, configuration=options.config_path, definition=definition
            )
    return programs


def _is_path(text: str) -> bool:
    """Return whether a text may be a path that people are shown, or a program's name."""
    return len(os.fsencode(text)) <= _MOST_PATH_BYTES and text.isprintable()


def _program(table: _Runtime, options: _Options) -> str:
    if table.runtime_type == RUNC_SHIM:
        return options.binary or "runc"
    if table.runtime_path:
        return table.runtime_path
    # io.containerd.kata.v2 is run by containerd-shim-kata-v2.
    words = table.runtime_type.split(".")
    return f"containerd-shim-{'-'.join(words[-2:])}" if len(words) > 2 and all(words) else ""


class EnginePrograms:
    """Programs of one engine's handlers, read again at times."""

    def __init__(self, cri: CriClient, clock: Clock, *, sees_host: bool) -> None:
        """`sees_host` says that this process has the host's file system."""
        self._cri = cri
        self._clock = clock
        self._sees_host = sees_host
        self._programs: Mapping[str, HandlerProgram] = {}
        self._names: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._versions: dict[tuple[object, ...], str] = {}

    async def known(self, names: Collection[str]) -> list[KnownHandler]:
        """Return the handlers of these names, each with what is known of its program."""
        now_s = self._clock.monotonic()
        if self._names != frozenset(names) or now_s - self._read_at >= _REFRESH_S:
            self._names, self._read_at = frozenset(names), now_s
            try:
                self._programs = await self._read()
            except CriError as error:
                log.debug("the engine's configuration cannot be read", reason=error.sentence)
        return [await self._known(name, self._programs.get(name)) for name in names]

    async def _read(self) -> Mapping[str, HandlerProgram]:
        status = await self._cri.call(
            self._cri.runtime.Status, pb.StatusRequest(verbose=True), timeout_s=_STATUS_TIMEOUT_S
        )
        return handler_programs(status.info.get(_CONFIGURATION, ""))

    async def _known(self, name: str, found: HandlerProgram | None) -> KnownHandler:
        if found is None:
            return KnownHandler(name=name, definition=name)
        path = None
        if self._sees_host:
            path = await asyncio.to_thread(shutil.which, found.program, path=search_path())
        files = [path] if path is not None else []
        if self._sees_host and found.configuration.startswith("/"):
            files.append(found.configuration)
        shown = path or (found.program if found.program.startswith("/") else "")
        program = RuntimeProgram(
            name=PurePosixPath(found.program).name,
            version="" if path is None else await self._version(Path(path)),
            path=shown,
        )
        return KnownHandler(
            name=name,
            definition=found.definition,
            # The first is the program, whose digest is shown.
            programs=tuple(map(Path, files)) if path is not None else (),
            program=program,
        )

    async def _version(self, path: Path) -> str:
        """Return a program's version, asked once for each state of its file; empty if unknown."""
        try:
            status = await asyncio.to_thread(path.stat)
        except OSError:
            return ""
        key = (path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if key not in self._versions:
            answer = await probe_program(_runtime(path.name), path, _NO_KERNEL)
            if answer.is_unanswered:
                # Asked again at the next look: a busy host may have been the cause.
                return ""
            if len(self._versions) >= _MOST_VERSIONS:
                self._versions.clear()
            self._versions[key] = str(answer.version or "")
        return self._versions[key]


def _runtime(name: str) -> Runtime:
    """Return the known runtime with a program of this name, else one like any."""
    for runtime in KNOWN_RUNTIMES:
        if PurePosixPath(runtime.program).name == name:
            return runtime
    return Runtime(name=name, program=name, handlers=(), is_shim=name.startswith("containerd-shim"))
