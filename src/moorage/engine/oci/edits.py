"""CDI edits of a spec. Pure.

Source: CNCF Container Device Interface 1.0, `containerEdits`; OCI runtime-spec, "POSIX-platform
Hooks".
"""

from __future__ import annotations

from moorage.engine.errors import InvalidError
from moorage.engine.oci.cdi import NO_EDITS, ContainerEdits, Hook
from moorage.engine.oci.context import Document

_HOOKS = frozenset(
    {
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    }
)
_MOUNT_OPTIONS = ("ro", "nosuid", "nodev", "bind")


def apply_edits(spec: Document, edits: ContainerEdits) -> Document:
    """Return the spec with a container's edits: environment, mounts, groups and hooks.

    The device nodes are in the spec already. Raises InvalidError for an unknown hook.
    """
    if edits == NO_EDITS:
        return spec
    process = dict(spec["process"])
    names = {variable.partition("=")[0] for variable in edits.env}
    process["env"] = [
        *(variable for variable in process["env"] if variable.partition("=")[0] not in names),
        *edits.env,
    ]
    groups = (*process["user"]["additionalGids"], *edits.additional_gids)
    process["user"] = process["user"] | {"additionalGids": list(dict.fromkeys(groups))}
    replaced = {mount.container_path for mount in edits.mounts}
    added = [
        {
            "destination": mount.container_path,
            "type": mount.type or "bind",
            "source": mount.host_path,
            "options": list(mount.options or _MOUNT_OPTIONS),
        }
        for mount in edits.mounts
    ]
    mounts = [mount for mount in spec["mounts"] if mount["destination"] not in replaced]
    edited = spec | {"process": process, "mounts": mounts + added}
    if edits.hooks:
        edited["hooks"] = _hooks(edits.hooks)
    if edits.intel_rdt:
        edited["linux"] = spec["linux"] | {"intelRdt": edits.intel_rdt}
    return edited


def _hooks(hooks: tuple[Hook, ...]) -> Document:
    hooks_document: Document = {}
    for hook in hooks:
        if hook.hook_name not in _HOOKS:
            raise InvalidError(
                f"a CDI device has the hook {hook.hook_name!r}; it must be one of "
                f"{', '.join(sorted(_HOOKS))}"
            )
        entry: Document = {"path": hook.path}
        if hook.args:
            entry["args"] = list(hook.args)
        if hook.env:
            entry["env"] = list(hook.env)
        if hook.timeout is not None:
            entry["timeout"] = hook.timeout
        hooks_document.setdefault(hook.hook_name, []).append(entry)
    return hooks_document
