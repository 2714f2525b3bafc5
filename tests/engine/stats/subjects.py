"""Containers and sandboxes to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.engine.stats import ContainerSubject, SandboxSubject
from moorage.wire.cri import pb

LAYERS = Path("/")


async def small_layer() -> tuple[int, int]:
    return 4096, 2


def container(id_: str = "c1", **fields: Any) -> ContainerSubject:
    usual: dict[str, Any] = {
        "sandbox_id": "s1",
        "metadata": pb.ContainerMetadata(name="app"),
        "cgroup": "/pods/a",
        "layers": LAYERS,
        "writable_usage": small_layer,
        "labels": {"role": "web"},
        **fields,
    }
    return ContainerSubject(id=id_, **usual)


def sandbox(id_: str = "s1", **fields: Any) -> SandboxSubject:
    usual: dict[str, Any] = {
        "metadata": pb.PodSandboxMetadata(name="web", namespace="shop", uid="u"),
        "cgroup": "/pods",
        "netns": None,
        "labels": {"role": "web"},
        **fields,
    }
    return SandboxSubject(id=id_, **usual)
