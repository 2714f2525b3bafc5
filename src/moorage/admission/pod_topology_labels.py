"""PodTopologyLabels plugin: a pod has the zone and the region of its node as labels.

So programs in the pod can read them by the downward API. Source: apiserver plugin
PodTopologyLabels of Kubernetes 1.37, KEP-4742.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.admission.chain import CREATE, UPDATE, Scope
from moorage.api.nodes import Node
from moorage.registry.request import Attributes

_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_BINDING = "binding"


class PodTopologyLabels:
    """Copies labels of the node to pods that are bound, or created on a node.

    `find_node` returns a node by its name. A binding is an update of the pod here.
    """

    name = "PodTopologyLabels"
    scope = Scope.of(["pods"], [CREATE, UPDATE], ["", _BINDING])
    validate = None

    def __init__(self, find_node: Callable[[str], Node | None]) -> None:
        self._find_node = find_node
        self.mutate = self._label

    def _label(self, attributes: Attributes) -> None:
        if attributes.operation == UPDATE and attributes.subresource != _BINDING:
            return
        pod = attributes.obj
        assert pod is not None
        node_name = pod["spec"].get("nodeName")
        node = self._find_node(node_name) if node_name else None
        if node is None:
            return
        own = node.metadata.labels
        copied = {label: own[label] for label in _LABELS if label in own}
        if copied:
            meta = pod["metadata"]
            meta["labels"] = {**meta.get("labels", {}), **copied}
