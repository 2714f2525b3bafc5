"""CRI sockets of engines at their usual paths. Source: containerd(8), crio(8), k3s "containerd"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

USUAL_SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/var/run/crio/crio.sock"),
)
KUBELET_SOCKETS = (
    *USUAL_SOCKETS,
    Path("/run/k3s/containerd/containerd.sock"),
    Path("/run/moorage-engine/engine.sock"),
)
"""Sockets of engines that a kubelet may use: with that of k3s, and ours."""


def sockets_in(sockets: Sequence[Path]) -> list[Path]:
    """Return those of these sockets that exist, each once, by path. Blocks.

    One in a directory that this process may not look into is none of a kubelet's.
    """
    return sorted({path.resolve() for path in sockets if _is_socket(path)})


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except PermissionError:
        return False
