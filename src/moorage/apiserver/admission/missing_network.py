"""MissingNetwork plugin: warns of new objects that this cluster does not implement yet.

In clusters with a node of ours; where other nodes and their network are attached, the plugin is not
in the chain.
"""

from __future__ import annotations

from moorage.api.missing_network import INGRESS, NETWORK_POLICY, service_warning
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.request import Attributes

_TEXTS = {"ingresses": INGRESS, "networkpolicies": NETWORK_POLICY}


class MissingNetwork:
    """Warns of Services with a cluster IP, Ingresses and NetworkPolicies; refuses none."""

    name = "MissingNetwork"
    scope = Scope.of(
        ["services", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"], [CREATE]
    )
    mutate = None

    def __init__(self) -> None:
        self.validate = self._warn

    def _warn(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        text = _TEXTS.get(attributes.kind.plural)
        if text is None:
            spec = attributes.obj["spec"]
            text = service_warning(spec.get("type", ""), spec.get("clusterIP", ""))
        if text:
            attributes.request.warn(text)
