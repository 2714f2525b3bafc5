"""Sandbox-weakening annotations, and the handler files that pass them to a runtime.

Files that an earlier version generated pass all of a runtime's annotations, and later starts never
change an existing file. Source: crun(1) "ANNOTATIONS", gVisor `runsc/specutils` and `runsc/config`,
Kata "Annotations", CRIU's configuration files.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from moorage.engine.handlers.definition import DefinitionError
from moorage.engine.handlers.discovery import read_definition
from moorage.engine.handlers.templates import is_generated

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
"""With these a pod replaces its seccomp filter, names host files, or changes its runtime's
flags.
"""


def passed_on(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of a handler file that match such an annotation."""
    return tuple(
        pattern for pattern in patterns if any(fnmatchcase(key, pattern) for key in WEAKENING)
    )


def outdated_patterns(path: Path) -> tuple[str, ...]:
    """Return such patterns of a generated handler file; none for a user's own or a broken file."""
    try:
        definition, text = read_definition(path)
    except DefinitionError:
        # Broken files are reported where they are read for use.
        return ()
    if not is_generated(text) or not definition.is_enabled:
        return ()
    return passed_on((*definition.annotations, *definition.container_annotations))
