"""Annotations by which a pod's author weakens its sandbox, and handler files that pass them on.

Files that an earlier version generated pass all of a runtime's annotations, and no later start
changes a file that is there. Source: crun(1) "ANNOTATIONS", gVisor `runsc/specutils` and
`runsc/config`, Kata "Annotations", CRIU's configuration files.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from moorage.handlers.definition import DefinitionError
from moorage.handlers.directory import read_definition
from moorage.handlers.templates import is_generated

WEAKENING: tuple[str, ...] = (
    "run.oci.seccomp_bpf_data",
    "run.oci.seccomp.plugins",
    "run.oci.seccomp.receiver",
    "run.oci.pidfd_receiver",
    "run.oci.hooks.stdout",
    "run.oci.hooks.stderr",
    "run.oci.keep_original_groups",
    "run.oci.handler",
    "run.oci.delegate-cgroup",
    "run.oci.systemd.subgroup",
    "dev.gvisor.flag.debug-log",
    "dev.gvisor.spec.rootfs.source",
    "dev.gvisor.internal.nvproxy",
    "io.katacontainers.config_path",
    "org.criu.config",
)
"""With these a pod replaces its filter, names files of the host, or changes its runtime's flags."""


def passed_on(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of a handler file that let such an annotation through."""
    return tuple(
        pattern for pattern in patterns if any(fnmatchcase(key, pattern) for key in WEAKENING)
    )


def outdated_patterns(path: Path) -> tuple[str, ...]:
    """Return such patterns of a generated file; none of one that is somebody's own, or broken."""
    try:
        definition, text = read_definition(path)
    except DefinitionError:
        # Broken files are complained of where they are read to be used.
        return ()
    if not is_generated(text) or not definition.is_enabled:
        return ()
    return passed_on((*definition.annotations, *definition.container_annotations))
