"""Image of the probe programs: their names, and their files for an architecture."""

from __future__ import annotations

from collections.abc import Callable

from moorage.runtimes.probing.programs import (
    capabilities,
    devices,
    facts,
    limits,
    nesting,
    networks,
    serving,
    system_calls,
)
from moorage.runtimes.probing.programs.interpreter import ARCHITECTURES
from moorage.runtimes.probing.programs.script import Script

PROBE_IMAGE = "moorage.local/probe:1"
_DIRECTORY = "probe"

_PROGRAMS: dict[str, Callable[[Script], None]] = {
    "facts": facts.write,
    "system-calls": system_calls.write,
    "capabilities": capabilities.write,
    "networks": networks.write,
    "devices": devices.write,
    "cpu": limits.write_cpu,
    "memory": limits.write_memory,
    "processes": limits.write_processes,
    "nesting": nesting.write,
    "serve": serving.write,
}


def architectures() -> tuple[str, ...]:
    """Return the architectures that programs can be made for, as OCI platforms spell them."""
    return ARCHITECTURES


def program_path(name: str) -> str:
    """Return the path of a program in the image. Raises KeyError for one that does not exist."""
    if name not in _PROGRAMS:
        raise KeyError(name)
    return f"/{_DIRECTORY}/{name}"


def program_files(architecture: str) -> dict[str, bytes]:
    """Return path without leading slash → content of the programs; none for other architectures."""
    if architecture not in ARCHITECTURES:
        return {}
    files = {}
    for name, write in _PROGRAMS.items():
        script = Script(architecture)
        write(script)
        files[f"{_DIRECTORY}/{name}"] = script.finished()
    return files
