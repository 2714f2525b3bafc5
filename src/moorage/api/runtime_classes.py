"""RuntimeClass: a name for pods, its handler, overhead and scheduling rules.

Source: node.k8s.io/v1, KEP-585 (class), KEP-688 (overhead).
"""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta
from moorage.api.pods import Toleration


class Overhead(Object, frozen=True):
    pod_fixed: dict[str, str] = {}


class Scheduling(Object, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None
