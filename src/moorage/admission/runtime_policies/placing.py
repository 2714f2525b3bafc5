"""PlacingByHandler plugin: nodes without a pod's handler are kept out by required node affinity.

For clusters whose scheduler does not know handlers: `moor webhook --place-by-handler`. After the
class is chosen, the pod requires the labels of its handler and needs; where all nodes that it may
use are known to lack them, a scheduling gate holds it until the controller of gates removes that.
Idempotent, since a webhook may be called again. `moorage.runtimeclass.placing` decides.
"""

from __future__ import annotations

from moorage.admission.chain import CREATE, Scope
from moorage.admission.runtime_policies.facts import Facts
from moorage.registry.kind import Obj
from moorage.registry.request import Attributes
from moorage.runtimeclass.class_choice import ChoiceRefusal, stated_needs
from moorage.runtimeclass.demands import demanded_features
from moorage.runtimeclass.exemptions import is_exempt
from moorage.runtimeclass.handler import is_implicit
from moorage.runtimeclass.needs import NO_NEEDS, Needs
from moorage.runtimeclass.placing import hold, is_placeable, place, require_labels


class PlacingByHandlerAdmission:
    """Adds node affinity and the gate to new pods of a class; refuses none."""

    name = "PlacingByHandler"
    scope = Scope.of(["pods"], [CREATE])
    validate = None

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def mutate(self, attributes: Attributes) -> None:
        """Place a new pod by the handler of its class. A class that is missing places none."""
        pod = attributes.obj
        assert pod is not None
        metadata, spec = pod["metadata"], pod["spec"]
        name = spec.get("runtimeClassName")
        if is_implicit(name) or not is_placeable(attributes.namespace, metadata, spec):
            return
        if is_exempt(attributes.namespace, metadata, spec, attributes.request.user.groups):
            return
        index = self._facts.index()
        offer = index.find(name)
        if offer is None:
            return
        needs = self._needs(attributes.namespace, pod)
        placement = place(spec, offer, index, needs, demanded_features(spec))
        require_labels(spec, placement.labels)
        if placement.is_held:
            hold(metadata, spec, needs)
            attributes.request.warn(placement.message)

    def _needs(self, namespace: str, pod: Obj) -> Needs:
        rules = self._facts.rules(namespace)
        own = pod["metadata"].get("annotations") or {}
        try:
            return stated_needs(own, rules.annotations, rules.policy)[0]
        except ChoiceRefusal:
            # Of an explicit class they are warned of, not refused.
            return NO_NEEDS
