"""PlacingByHandler plugin: nodes without a pod's handler are kept out by required node affinity.

For clusters whose scheduler does not know handlers: `moor webhook --place-by-handler`. After the
class is chosen, the pod requires the labels of its handler and needs; where all nodes that it may
use are known to lack them, a scheduling gate holds it until the controller of gates removes that.
Idempotent, since a webhook may be called again. `moorage.runtimeclass.placing` decides.

Updates of a held pod must not lose what it is held for: the annotation stays as it is, and a pod
whose gate is removed gets the labels that its release would have given it. The affinity needs no
care, since that of a gated pod may only be added to. Source: KEP-3838.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.api.runtime_group import HELD_FOR_ANNOTATION
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.admission.runtime_policies.sources import Facts
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes
from moorage.runtimeclass.class_choice import binding_needs
from moorage.runtimeclass.demands import demanded_features
from moorage.runtimeclass.exemptions import is_exempt
from moorage.runtimeclass.needs import Needs
from moorage.runtimeclass.placing import (
    has_gate,
    held_needs,
    hold,
    is_placeable,
    labels_of_needs,
    place,
    require_labels,
    state_held_for,
)
from moorage.runtimeclass.validation import is_implicit

_STATUS = "status"


class PlacingByHandlerAdmission:
    """Adds node affinity and the gate to new pods of a class; refuses none.

    Of pods that are held it keeps what they are held for.
    """

    name = "PlacingByHandler"
    scope = Scope.of(["pods"], [CREATE, UPDATE], ["", _STATUS])
    validate = None

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def mutate(self, attributes: Attributes) -> None:
        """Place a new pod by the handler of its class. A class that is missing places none."""
        pod = attributes.obj
        assert pod is not None
        if attributes.operation == UPDATE:
            self._keep(attributes, pod, attributes.old or {})
        elif not attributes.subresource:
            self._place(attributes, pod)

    def _place(self, attributes: Attributes, pod: Obj) -> None:
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
            attributes.request.warn(placement.message)
        if placement.is_held or has_gate(spec):
            hold(metadata, spec, needs)
        else:
            state_held_for(metadata, "")

    def _keep(self, attributes: Attributes, pod: Obj, old: Mapping[str, Any]) -> None:
        """Keep what a held pod is held for, or have one whose gate is removed require it."""
        if not has_gate(old.get("spec") or {}):
            return
        metadata, spec = pod["metadata"], pod["spec"]
        before = (old.get("metadata") or {}).get("annotations") or {}
        # An update of the status changes no gates, whatever it says of them.
        if attributes.subresource or has_gate(spec):
            state_held_for(metadata, before.get(HELD_FOR_ANNOTATION, ""))
            return
        state_held_for(metadata, "")
        name = spec.get("runtimeClassName")
        if not is_implicit(name) and is_placeable(attributes.namespace, metadata, spec):
            require_labels(spec, self._labels_of_freed(name, spec, held_needs(before)))

    def _labels_of_freed(self, name: str, spec: Obj, needs: Needs) -> Iterable[str]:
        """Return the labels that a pod must require whose gate is removed before a node has them.

        No node is known to have them all, so that the pod waits for one without the gate.
        """
        index = self._facts.index()
        offer = index.find(name)
        if offer is None:
            return ()
        placement = place(spec, offer, index, needs)
        return labels_of_needs(offer.handler, needs) if placement.is_held else placement.labels

    def _needs(self, namespace: str, pod: Obj) -> Needs:
        rules = self._facts.rules(namespace)
        own = pod["metadata"].get("annotations") or {}
        return binding_needs(own, rules.annotations, rules.policy)
