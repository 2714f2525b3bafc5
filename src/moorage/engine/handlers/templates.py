"""Handler file templates: the files that a first start writes into `handlers.d`.

Pure, except for `write_missing`. A name with a file in any directory is left alone: user edits are
kept, and a handler is disabled with `enabled = false` rather than by removing its file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.handlers.availability import AVAILABLE, Verdict
from moorage.engine.handlers.defects import gvisor_date
from moorage.engine.handlers.definition import SUFFIX, AdapterKind, HandlerDefinition
from moorage.engine.handlers.features import NO_FEATURES, HandlerFeatures
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.engine.handlers.search_path import Program
from moorage.linux.trees import make_directories
from moorage.linux.trust import write_private

# Handler catalogue: the handlers in force, from their files and the probes of their programs.

_PREFERRED = tuple(
    name for runtime in KNOWN_RUNTIMES if runtime.can_be_default for name in runtime.handlers
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedHandler:
    """A handler with a file. `program` is None when its program is not installed."""

    definition: HandlerDefinition
    program: Path | None = None
    version: str = ""
    features: HandlerFeatures = NO_FEATURES
    verdict: Verdict = AVAILABLE

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def is_available(self) -> bool:
        return self.verdict.is_available


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem with a handler file; `has_former` says that its previous version stays in force."""

    path: Path
    line: int
    problem: str
    remedy: str
    has_former: bool = False

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        suffix = "; its previous version stays in effect" if self.has_former else ""
        return f"{place}: {self.problem} ({self.remedy}){suffix}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All handlers by name, and the problems with their files. Compares by value."""

    handlers: Mapping[str, OfferedHandler] = field(default_factory=dict)
    complaints: tuple[Diagnostic, ...] = ()

    def __iter__(self) -> Iterator[OfferedHandler]:
        return iter(self.handlers.values())

    def find(self, name: str) -> OfferedHandler | None:
        """Return a handler by name, the default one for the empty name; None if absent.

        The handler may be unavailable: its `verdict` says why.
        """
        return self.handlers.get(name or self.default_name)

    @property
    def default_name(self) -> str:
        """Return the handler of pods without a RuntimeClass; empty when there is none.

        The order is: the handler whose file sets `default`, the first available one of the known
        runtimes that can be the default, the first available one with the OCI adapter.
        """
        return next(_defaults(self.handlers), "")


def _defaults(handlers: Mapping[str, OfferedHandler]) -> Iterator[str]:
    yield from (name for name, handler in handlers.items() if handler.definition.is_default)
    yield from (name for name in _PREFERRED if name in handlers and handlers[name].is_available)
    yield from (
        name
        for name, handler in handlers.items()
        if handler.is_available and handler.definition.adapter is AdapterKind.OCI
    )


def changed_names(old: Catalogue, new: Catalogue) -> tuple[str, ...]:
    """Return the names of handlers that were added, removed or changed, sorted."""
    names: Iterable[str] = {*old.handlers, *new.handlers}
    return tuple(sorted(name for name in names if old.handlers.get(name) != new.handlers.get(name)))


_HEADER = """\
# The runtime handler "{name}": {runtime}, found when Moorage started.
# Safe to edit: this file is never overwritten, and changes take effect at once.
# To disable the handler, set `enabled = false`; a missing file is written again at the next
# start.
"""
_GENERATED = b"found when Moorage started."
_OLD_GVISOR = """
[options]
# This version of gVisor knows no newer platform that works in a virtual machine, mistakes a pod's
# network namespace for the host's, and sets no cgroups on every layout.
platform = "ptrace"
network = "host"
ignore_cgroups = true
"""
_SYSTRAP_SINCE = 20230101


def generate(
    programs: Mapping[str, Program], runtimes: Iterable[Runtime] = KNOWN_RUNTIMES
) -> dict[str, str]:
    """Return the file content for each handler of the known runtimes whose program is installed.

    `programs` are keyed by program name. A runtime that needs a configuration file and has none
    gets no handler file.
    """
    texts = {}
    for runtime in runtimes:
        program = programs.get(runtime.program)
        configuration = next((file for file in runtime.configurations if file.is_file()), None)
        if program is None or (runtime.configurations and configuration is None):
            continue
        for name in runtime.handlers:
            texts[name] = _text(name, runtime, program, configuration)
    return texts


def write_missing(
    directory: Path, texts: Mapping[str, str], taken: Iterable[str]
) -> tuple[str, ...]:
    """Write a file for each handler whose name is not taken; return the names written.

    Each file is created atomically. Raises OSError.
    """
    missing = {name: text for name, text in texts.items() if name not in set(taken)}
    if missing:
        make_directories(directory)
    written = []
    for name, text in missing.items():
        unfinished = directory / f".{name}{SUFFIX}.new"
        write_private(unfinished, text.encode())
        try:
            # link(2), unlike rename(2), does not replace a file that was created in between.
            os.link(unfinished, directory / f"{name}{SUFFIX}")
            written.append(name)
        except FileExistsError:
            continue
        finally:
            unfinished.unlink()
    return tuple(written)


def is_generated(content: bytes) -> bool:
    """Return whether a handler file has the generated header, edited since or not."""
    return _GENERATED in content.partition(b"\n")[0]


def adapter_of(runtime: Runtime) -> AdapterKind:
    """Return the adapter with which Moorage's own engine drives a known runtime."""
    if runtime.is_shim:
        return AdapterKind.SHIM
    return AdapterKind.RUNSC if runtime.is_gvisor else AdapterKind.OCI


def _text(name: str, runtime: Runtime, program: Program, configuration: Path | None) -> str:
    adapter = adapter_of(runtime)
    lines = [_HEADER.format(name=name, runtime=runtime.name)]
    lines += [f"adapter = {_quoted(adapter)}", f"binary = {_quoted(str(program.path))}"]
    if runtime.annotations:
        lines.append(f"annotations = [{', '.join(map(_quoted, runtime.annotations))}]")
    if runtime.platform:
        lines.append(f"platform = {_quoted(runtime.platform)}")
    if runtime.needs_kvm:
        # A guest kernel has no use for the host's devices.
        lines.append("privileged_without_host_devices = true")
    if adapter is AdapterKind.SHIM:
        lines += ["", "[options]", f"runtime_type = {_quoted(runtime.shim_type)}"]
        if configuration is not None:
            lines.append(f"config_path = {_quoted(str(configuration))}")
        if not runtime.needs_kvm:
            lines.append("needs_sandbox = false")
    text = "\n".join(lines) + "\n"
    return text + (_OLD_GVISOR if _is_old_gvisor(runtime, program) else "")


def _is_old_gvisor(runtime: Runtime, program: Program) -> bool:
    if not runtime.is_gvisor or program.version is None:
        return False
    date = gvisor_date(str(program.version))
    return date is not None and date < _SYSTRAP_SINCE


def _quoted(text: str) -> str:
    """Return a TOML basic string, which is written as JSON's. Source: TOML 1.0, "String"."""
    return json.dumps(text)
