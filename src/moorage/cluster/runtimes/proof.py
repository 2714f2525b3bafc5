"""Proof that a handler works: a sandbox with one container that ends well, through the CRI."""

from __future__ import annotations

import asyncio
import uuid

from moorage.cri import CriClient, CriError, pb

_STEP_S = 60.0
_LOOK_S = 0.1
_COMMAND = ("true",)


async def prove(cri: CriClient, handler: str, image: str) -> str:
    """Run `true` under a handler; return why that failed, empty if it did not.

    The sandbox is removed in any case. It has no labels of a pod, so node agents leave it alone.
    """
    name = f"proof-{uuid.uuid4().hex[:12]}"
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, namespace="moorage-proof", uid=name),
        hostname=name,
        linux=pb.LinuxPodSandboxConfig(),
    )
    request = pb.RunPodSandboxRequest(config=config, runtime_handler=handler)
    try:
        answer = await cri.call(cri.runtime.RunPodSandbox, request, timeout_s=_STEP_S)
    except CriError as error:
        return f"its sandbox does not start: {error.sentence}"
    try:
        async with asyncio.timeout(_STEP_S):
            return await _run(cri, answer.pod_sandbox_id, config, image)
    except CriError as error:
        return f"its container does not run: {error.sentence}"
    except TimeoutError:
        return f"its container does not end within {_STEP_S:g} s"
    finally:
        await _remove(cri, answer.pod_sandbox_id)


async def _run(cri: CriClient, sandbox: str, config: pb.PodSandboxConfig, image: str) -> str:
    container = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="proof"),
        image=pb.ImageSpec(image=image),
        command=_COMMAND,
        linux=pb.LinuxContainerConfig(),
    )
    request = pb.CreateContainerRequest(
        pod_sandbox_id=sandbox, config=container, sandbox_config=config
    )
    created = await cri.call(cri.runtime.CreateContainer, request, timeout_s=_STEP_S)
    id_ = created.container_id
    await cri.call(
        cri.runtime.StartContainer, pb.StartContainerRequest(container_id=id_), timeout_s=_STEP_S
    )
    while True:
        # Not every engine streams events, and the container ends in milliseconds.
        answer = await cri.call(
            cri.runtime.ContainerStatus, pb.ContainerStatusRequest(container_id=id_)
        )
        if answer.status.state == pb.CONTAINER_EXITED:
            code = answer.status.exit_code
            return f"its container ended with status {code}" if code else ""
        await asyncio.sleep(_LOOK_S)


async def _remove(cri: CriClient, sandbox: str) -> None:
    await cri.call(
        cri.runtime.StopPodSandbox,
        pb.StopPodSandboxRequest(pod_sandbox_id=sandbox),
        timeout_s=_STEP_S,
    )
    await cri.call(
        cri.runtime.RemovePodSandbox,
        pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox),
        timeout_s=_STEP_S,
    )
