"""Pod cgroup: created before the sandbox if the CRI client has not created it, removed with it.

A kubelet creates and sizes the pod's cgroup before RunPodSandbox, and removes it later. Other
clients only name one; a runtime would create it then, and nothing would remove it. The list of
cgroups to create is written beside the sandbox's files first, so that a new engine can remove them.
"""

from __future__ import annotations

from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.linux.atomic_file import replace_file
from moorage.linux.private import make_private

_CREATED_FILE = "cgroups"


async def create_pod_cgroup(context: EngineContext, sandbox: Sandbox) -> None:
    """Create the cgroup that a sandbox names, if it is missing. Raises EngineError, OSError."""
    driver = sandbox.cgroup_driver
    cgroup = sandbox.cgroup
    if cgroup.is_parent_shared:
        return
    missing = await context.cgroups.missing(driver, cgroup.parent)
    if missing:
        directory = context.paths.sandbox_files(sandbox.id)
        make_private(directory)
        # Atomically: a truncated path would name another cgroup.
        replace_file(directory / _CREATED_FILE, "\n".join(missing).encode())
        await context.cgroups.create_parent(driver, cgroup.parent)


async def remove_pod_cgroup(context: EngineContext, sandbox_id: str) -> None:
    """Remove the cgroups created for a sandbox, unless others use them. Raises EngineError."""
    try:
        created = (context.paths.sandbox_files(sandbox_id) / _CREATED_FILE).read_text()
    except FileNotFoundError:
        return
    await context.cgroups.remove_if_empty(tuple(filter(None, created.split("\n"))))
