"""Statistics as node agents serve them."""

from __future__ import annotations

from typing import Any

import msgspec

NANO = 1_000_000_000


def used(cpu_ns: int | None, memory_bytes: int | None) -> dict[str, Any]:
    """Return totals in the form of `stats/v1alpha1`."""
    return {
        "cpu": {"time": "t", **({} if cpu_ns is None else {"usageCoreNanoSeconds": cpu_ns})},
        "memory": {} if memory_bytes is None else {"workingSetBytes": memory_bytes},
    }


def summary(
    node: tuple[int | None, int | None] = (0, 0), **pods: dict[str, tuple[int | None, int | None]]
) -> bytes:
    """Return a summary: totals of the node, and of the containers of each pod by its UID."""
    listed = [
        {
            "podRef": {"uid": uid, "name": "any", "namespace": "any"},
            "containers": [{"name": name, **used(*totals)} for name, totals in containers.items()],
        }
        for uid, containers in pods.items()
    ]
    return msgspec.json.encode({"node": {"nodeName": "n", **used(*node)}, "pods": listed})
