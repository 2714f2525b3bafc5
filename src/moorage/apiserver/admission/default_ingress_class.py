"""DefaultIngressClass plugin: the default class of Ingresses that name none.

Source: apiserver plugin DefaultIngressClass of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moorage.api.ingress_classes import CLASS_ANNOTATION, IngressClass
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.request import Attributes


class DefaultIngressClass:
    """Sets the class of new Ingresses: the newest of those annotated as default.

    `every` returns all classes.
    """

    name = "DefaultIngressClass"
    scope = Scope.of(["ingresses.networking.k8s.io"], [CREATE])
    validate = None

    def __init__(self, every: Callable[[], Iterable[IngressClass]]) -> None:
        self._every = every
        self.mutate = self._set_class

    def _set_class(self, attributes: Attributes) -> None:
        ingress = attributes.obj
        assert ingress is not None
        if "ingressClassName" in ingress["spec"]:
            return
        if CLASS_ANNOTATION in ingress["metadata"].get("annotations", {}):
            return
        defaults = [candidate for candidate in self._every() if candidate.is_default]
        if defaults:
            by_name = sorted(defaults, key=lambda candidate: candidate.metadata.name)
            newest = max(by_name, key=lambda one: one.metadata.creation_timestamp or "")
            ingress["spec"]["ingressClassName"] = newest.metadata.name
