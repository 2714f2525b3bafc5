"""Spec annotations, from which virtualised runtimes learn whether a task is the sandbox or joins
one.

Both containerd's and CRI-O's keys are written, since each runtime knows at least one of them.
Source: containerd `annotations`, CRI-O `annotations`; gVisor and Kata read either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from moorage.engine.oci.context import ContainerRequest, SandboxRequest
from moorage.wire.cri import pb

_CRI = "io.kubernetes.cri."
_CRI_O = "io.kubernetes.cri-o."
_SIZES = (("cpu-period", "cpu_period"), ("cpu-quota", "cpu_quota"), ("cpu-shares", "cpu_shares"),
          ("memory", "memory_limit_in_bytes"))  # fmt: skip


def container_annotations(request: ContainerRequest) -> dict[str, str]:
    """Return the annotations of a container's spec."""
    config, sandbox, handler = request.config, request.sandbox, request.handler
    passed = _passed(sandbox.config.annotations, handler.annotation_patterns)
    passed |= _passed(config.annotations, handler.container_annotation_patterns)
    image = config.image.user_specified_image or config.image.image
    return passed | {
        **_of_pod("container", sandbox.id, sandbox.config.metadata),
        f"{_CRI}container-name": config.metadata.name,
        f"{_CRI}image-name": image,
    }


def sandbox_annotations(request: SandboxRequest) -> dict[str, str]:
    """Return the annotations of a sandbox's spec, with the pod's resources if the client
    set them.
    """
    sandbox = request.sandbox
    config = sandbox.config
    return (
        _passed(config.annotations, request.handler.annotation_patterns)
        | _of_pod("sandbox", sandbox.id, config.metadata)
        | {f"{_CRI}sandbox-log-directory": config.log_directory}
        | _size(config.linux.resources)
    )


def _of_pod(kind: str, sandbox_id: str, metadata: pb.PodSandboxMetadata) -> dict[str, str]:
    return {
        f"{_CRI}container-type": kind,
        f"{_CRI}sandbox-id": sandbox_id,
        f"{_CRI}sandbox-name": metadata.name,
        f"{_CRI}sandbox-namespace": metadata.namespace,
        f"{_CRI}sandbox-uid": metadata.uid,
        f"{_CRI_O}ContainerType": kind,
        f"{_CRI_O}SandboxID": sandbox_id,
    }


def _size(resources: pb.LinuxContainerResources) -> dict[str, str]:
    return {
        f"{_CRI}sandbox-{name}": str(value)
        for name, field in _SIZES
        if (value := getattr(resources, field))
    }


def _passed(annotations: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    globs = tuple(patterns)
    if not globs:
        return {}
    return {
        key: value
        for key, value in annotations.items()
        if any(fnmatchcase(key, glob) for glob in globs)
    }
