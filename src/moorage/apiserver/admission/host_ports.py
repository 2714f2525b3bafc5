"""Host port plugin: refuses pods whose host ports belong to cluster components.

Such a pod would receive the connections to the API server or to its node's agent, and no client
could reach the API to delete it. The agent repeats the check for pods that bypass admission. No
Kubernetes plugin does this: see docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moorage.api.host_ports import Listener, complaint
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes


class HostPortAdmission:
    """Refuses new pods whose host ports conflict with a listener of the cluster.

    `own` are the API server's listeners; `nodes()` returns the nodes, whose status names the
    agents' addresses and ports.
    """

    name = "HostPorts"
    scope = Scope.of(["pods"], [CREATE])
    mutate = None

    def __init__(self, own: Iterable[Listener], nodes: Callable[[], Iterable[Node]]) -> None:
        self._own = tuple(own)
        self._nodes = nodes
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        if not _has_host_port(attributes.obj["spec"]):
            return
        pod = msgspec.convert(attributes.obj, Pod)
        listeners = (*self._own, *self._agents(pod.spec.node_name))
        why = complaint(pod, listeners)
        if why:
            raise refused(attributes, why)

    def _agents(self, node_name: str) -> Iterable[Listener]:
        """Yield the agent listeners of the node the pod names, else of every node."""
        for node in self._nodes():
            name = node.metadata.name
            port = node.status.daemon_endpoints.kubelet_endpoint.port
            if port and node_name in ("", name):
                for address in node.status.addresses:
                    if address.type == "InternalIP":
                        yield Listener(f"agent of node {name}", address.address, port)


def _has_host_port(spec: Obj) -> bool:
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    return any(
        port.get("hostPort") for container in containers for port in container.get("ports", ())
    )
