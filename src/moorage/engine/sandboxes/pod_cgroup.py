"""A pod's cgroup where its caller made none: made before the pod, gone with it.

A kubelet makes and sizes the cgroup before it asks for a sandbox, and removes it later. Others only
name one; a runtime would make it then, and nobody would remove it. What is to be made is written
beside the sandbox's files first, so that a new engine finds it whatever became of the sandbox.
"""

from __future__ import annotations

from moorage.engine.cgroups import container_cgroup
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.linux.private import make_private

_MADE = "cgroups"


async def make_pod_cgroup(context: EngineContext, sandbox: Sandbox) -> None:
    """Make the cgroup that a sandbox names, if it is missing. Raises EngineError, OSError."""
    driver = sandbox.record.definition.cgroup_driver
    place = container_cgroup(driver, sandbox.config.linux.cgroup_parent, sandbox.id)
    if place.is_parent_shared:
        return
    missing = await context.cgroups.missing(driver, place.parent)
    if missing:
        directory = context.paths.sandbox_files(sandbox.id)
        make_private(directory)
        # In one step: half a path would be another cgroup's.
        scratch = directory / f"{_MADE}.new"
        scratch.write_text("\n".join(missing))
        scratch.replace(directory / _MADE)
        await context.cgroups.make_parent(driver, place.parent)


async def remove_pod_cgroup(context: EngineContext, sandbox_id: str) -> None:
    """Remove what was made for a sandbox, unless others are in it by now. Raises EngineError."""
    try:
        made = (context.paths.sandbox_files(sandbox_id) / _MADE).read_text()
    except FileNotFoundError:
        return
    await context.cgroups.remove_if_empty(tuple(filter(None, made.split("\n"))))
