"""Handler file templates: the files that a first start writes into `handlers.d`.

Pure, except for `write_missing`. A name with a file in any directory is left alone: user edits are
kept, and a handler is disabled with `enabled = false` rather than by removing its file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from moorage.engine.handlers.defects import gvisor_date
from moorage.engine.handlers.definition import SUFFIX, AdapterKind
from moorage.engine.handlers.program_probe import Program
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.linux.private import write_private
from moorage.linux.trees import make_directories

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
