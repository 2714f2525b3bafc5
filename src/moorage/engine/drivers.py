"""Drivers: from a handler's definition to the adapter that drives its runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from moorage.engine.errors import FailedError
from moorage.engine.handlers.adapters import Adapter
from moorage.engine.handlers.adapters.conmon import Conmon
from moorage.engine.handlers.adapters.oci import OciAdapter, OciRuntime
from moorage.engine.handlers.adapters.runsc import RunscAdapter, runsc_options
from moorage.engine.handlers.definition import (
    CgroupDriver,
    HandlerDefinition,
    OciOptions,
    RunscOptions,
    ShimOptions,
)
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.oci.context import HandlerTraits
from moorage.engine.paths import EnginePaths
from moorage.linux.cgroups import Cgroups
from moorage.linux.reaper import Reaper


class Drivers:
    """The adapters of an engine, one for each definition and program in use.

    `async with` closes them; their containers keep running.
    """

    def __init__(
        self, paths: EnginePaths, conmon: Path | None, reaper: Reaper, cgroups: Cgroups
    ) -> None:
        self._paths = paths
        self._conmon = conmon
        self.reaper = reaper
        self._cgroups = cgroups
        self._adapters: dict[tuple[HandlerDefinition, Path], Adapter] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for adapter in self._adapters.values():
            await adapter.close()

    def adapter(self, definition: HandlerDefinition, program: Path) -> Adapter:
        """Return a handler's adapter. Raises FailedError when a program it needs is missing."""
        key = (definition, program)
        adapter = self._adapters.get(key)
        if adapter is None:
            adapter = self._adapters[key] = self._make(definition, program)
        return adapter

    def _make(self, definition: HandlerDefinition, program: Path) -> Adapter:
        options = definition.options
        if isinstance(options, OciOptions):
            return self._oci(definition, options, program)
        if isinstance(options, RunscOptions):
            return self._runsc(definition, options, program)
        return self._shim(definition, options, program)

    def _oci(self, definition: HandlerDefinition, options: OciOptions, program: Path) -> Adapter:
        runtime = OciRuntime(
            program=program,
            root=Path(options.root or self._paths.runtimes / program.name),
            arguments=options.global_arguments,
            create_arguments=_create_arguments(options),
            has_systemd_cgroups=definition.cgroup_driver is CgroupDriver.SYSTEMD,
        )
        return OciAdapter(runtime, self._monitor(), self.reaper, self._paths.scratch)

    def _runsc(
        self, definition: HandlerDefinition, options: RunscOptions, program: Path
    ) -> Adapter:
        flags = runsc_options(
            options,
            self._paths.runtimes / program.name,
            has_systemd_cgroups=definition.cgroup_driver is CgroupDriver.SYSTEMD,
        )
        return RunscAdapter(
            program,
            flags,
            self._monitor(),
            self.reaper,
            self._paths.scratch,
            self._cgroups if options.ignore_cgroups else None,
        )

    def _shim(self, definition: HandlerDefinition, options: ShimOptions, program: Path) -> Adapter:
        # Imported late: its protobuf messages take a megabyte.
        from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter

        return ShimAdapter.of(definition, options, program, self._paths.scratch)

    def _monitor(self) -> Conmon:
        if self._conmon is None:
            raise FailedError("conmon is not on PATH: apt-get install conmon")
        return Conmon(program=self._conmon, exits=self._paths.exits)


def with_cgroup_driver(definition: HandlerDefinition, default: CgroupDriver) -> HandlerDefinition:
    """Return a definition with the cgroup driver of its sandboxes.

    It is `default` where its file names none; cgroupfs for a gVisor that sets no cgroups, whose
    adapter makes directories below the pod's cgroup, which may be a slice.
    """
    options = definition.options
    if isinstance(options, RunscOptions) and options.ignore_cgroups:
        driver = CgroupDriver.CGROUPFS
    else:
        driver = definition.cgroup_driver or default
    return msgspec.structs.replace(definition, cgroup_driver=driver)


def handler_traits(definition: HandlerDefinition, features: HandlerFeatures) -> HandlerTraits:
    """Return the traits of a container's spec under a handler's definition and features."""
    return HandlerTraits(
        name=definition.name,
        annotation_patterns=definition.annotations,
        container_annotation_patterns=definition.container_annotations,
        has_recursive_read_only=features.recursive_read_only_mounts,
        has_user_namespaces=features.user_namespaces,
        cgroup_driver=definition.cgroup_driver or CgroupDriver.CGROUPFS,
        is_virtualised=not isinstance(definition.options, OciOptions),
        # gVisor cannot join a namespace by its path on the host.
        has_processes_joined_unsaid=isinstance(definition.options, RunscOptions),
        has_host_devices_when_privileged=not definition.privileged_without_host_devices,
        default_seccomp=definition.default_seccomp,
    )


def _create_arguments(options: OciOptions) -> tuple[str, ...]:
    chosen = (
        ("--no-pivot", options.no_pivot_root),
        ("--no-new-keyring", options.no_new_keyring),
    )
    return tuple(flag for flag, is_chosen in chosen if is_chosen)
