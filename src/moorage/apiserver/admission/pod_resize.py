"""PodResizeValidator plugin: refuses a resize beyond what the pod's node has for pods.

Source: apiserver plugin PodResizeValidator of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moorage.api.errors import ForbiddenError
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.quantity import Quantity, parse
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import RESIZE, UPDATE, Scope
from moorage.apiserver.registry.request import Attributes
from moorage.runtimeclass import pod_requests

_OS_LABEL = "kubernetes.io/os"
_LINUX = "linux"
_ZERO = Quantity(0)


class PodResizeValidator:
    """Compares the requests of a resized pod, with its overhead, with its node's allocatable ones.

    `find_node(name)` returns a node, or None.
    """

    name = "PodResizeValidator"
    scope = Scope.of(["pods"], [UPDATE], [RESIZE])
    mutate = None

    def __init__(self, find_node: Callable[[str], Node | None]) -> None:
        self._find_node = find_node
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        new, old = attributes.obj, attributes.old
        assert new is not None, "a resize has a pod"
        assert old is not None, "a resize changes a pod"
        node_name = new["spec"].get("nodeName", "")
        if not node_name or new["spec"] == old["spec"]:
            return
        node = self._find_node(node_name)
        if node is None:
            raise refused(attributes, f'node "{node_name}" not found')
        system = node.metadata.labels.get(_OS_LABEL, _LINUX)
        if system != _LINUX:
            why = f'pod resize is only supported on linux nodes, node "{node_name}" is "{system}"'
            raise _with_cause(refused(attributes, why), "UnsupportedPlatform")
        complaint = _complaint(msgspec.convert(new, Pod), node)
        if complaint:
            raise _with_cause(refused(attributes, complaint), "NodeCapacity")


def _complaint(pod: Pod, node: Node) -> str:
    """Return the resources that the node lacks; empty if the pod fits on it alone."""
    requests, allocatable = pod_requests(pod.spec), node.status.allocatable
    parts = []
    for name in ("cpu", "memory"):
        wanted, has = requests.get(name, _ZERO), parse(allocatable.get(name, "0"))
        if wanted > has:
            shown = [a.milli if name == "cpu" else a.value for a in (wanted, has)]
            parts.append(f"{name}, requested: {shown[0]}, allocatable: {shown[1]}")
    if not parts:
        return ""
    return f"node didn't have enough allocatable resources: {'; '.join(parts)}"


def _with_cause(error: ForbiddenError, reason: str) -> ForbiddenError:
    details = dict(error.details or {})
    details["causes"] = [{"reason": reason}]
    error.details = details
    return error
