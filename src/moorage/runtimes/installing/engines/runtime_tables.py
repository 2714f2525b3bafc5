"""Runtime tables: a handler's definition in the words of containerd and of CRI-O. Pure.

The inverse of `moorage.migrate.rules`, which reads these tables. What an engine cannot
express is refused, since a handler that leaves it out would be another one.
Source: containerd docs/cri/config.md; crio.conf(5).
"""

from __future__ import annotations

from typing import Any

from moorage.engine.handlers import HandlerDefinition, OciOptions, RunscOptions, ShimOptions
from moorage.engine.handlers.runtimes import RUNC_SHIM
from moorage.runtimes.installing.errors import RuntimeInstallationError

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
