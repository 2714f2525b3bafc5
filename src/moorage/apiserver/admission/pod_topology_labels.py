"""PodTopologyLabels plugin: a pod has the zone and the region of its node as labels.

So programs in the pod can read them by the downward API. Source: apiserver plugin
PodTopologyLabels of Kubernetes 1.36, KEP-4742.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.nodes import Node
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_BINDING = "binding"


class PodTopologyLabels:
    """Copies labels of the node to bindings, whose labels the pod gets, and to pods made on a node.

    `find_node` returns a node by its name.
    """

    name = "PodTopologyLabels"
    scope = Scope.of(["pods"], [CREATE], ["", _BINDING])
    validate = None

    def __init__(self, find_node: Callable[[str], Node | None]) -> None:
        self._find_node = find_node
        self.mutate = self._label

    def _label(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        node_name = _target(obj) if attributes.subresource else obj["spec"].get("nodeName")
        node = self._find_node(node_name) if node_name else None
        if node is None:
            return
        own = node.metadata.labels
        copied = {label: own[label] for label in _LABELS if label in own}
        if copied:
            meta = obj["metadata"]
            meta["labels"] = {**meta.get("labels", {}), **copied}


def _target(binding: Obj) -> str:
    """Return the node that a Binding names, empty if it names something else."""
    target = binding.get("target", {})
    return str(target.get("name", "")) if target.get("kind") == "Node" else ""
