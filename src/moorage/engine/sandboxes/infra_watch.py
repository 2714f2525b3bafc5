"""Infra process exit: a sandbox whose infra process exits by itself is stopped."""

from __future__ import annotations

from moorage.api.logs import Log
from moorage.engine.containers.lifecycle import guest_kills
from moorage.engine.context import EngineContext
from moorage.engine.inventory import Sandbox
from moorage.engine.sandboxes.stop import stop_pod_sandbox

log = Log(__name__)


async def watch_infra(context: EngineContext, sandbox: Sandbox) -> None:
    """Wait for the exit of a sandbox's infra process; stop the sandbox if that was unexpected.

    Its containers cannot run on without their PID namespace or virtual machine.
    """
    await context.adapter(sandbox).wait(sandbox.task(context.paths))
    async with sandbox.lock:
        # StopPodSandbox holds the lock while it deletes the infra process.
        is_unexpected = sandbox.record.is_ready
    if is_unexpected and context.inventory.sandboxes.get(sandbox.id) is sandbox:
        reason = "OOMKilled" if await guest_kills(context, sandbox) else "exited"
        log.info("infra process exited, stopping the sandbox", sandbox=sandbox.id, reason=reason)
        await stop_pod_sandbox(context, sandbox)
