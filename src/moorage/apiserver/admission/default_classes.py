"""Default classes of Ingresses and of claims that name none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moorage.api.claims.annotations import BETA_CLASS
from moorage.api.claims.classes import default_class
from moorage.api.ingress_classes import CLASS_ANNOTATION, IngressClass
from moorage.api.persistent_volumes import StorageClass
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.registry.request import Attributes

# DefaultIngressClass plugin: the default class of Ingresses that name none.
#
# Source: apiserver plugin DefaultIngressClass of Kubernetes 1.36.


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


# DefaultStorageClass plugin: the default class of claims that name none.
#
# Source: apiserver plugin DefaultStorageClass of Kubernetes 1.36.


class DefaultStorageClass:
    """Sets the class of new claims: the newest of those annotated as default.

    A claim with the class `""` wants a volume without a class. `every` returns all classes.
    """

    name = "DefaultStorageClass"
    scope = Scope.of(["persistentvolumeclaims"], [CREATE])
    validate = None

    def __init__(self, every: Callable[[], Iterable[StorageClass]]) -> None:
        self._every = every
        self.mutate = self._set_class

    def _set_class(self, attributes: Attributes) -> None:
        claim = attributes.obj
        assert claim is not None
        if "storageClassName" in claim["spec"]:
            return
        if BETA_CLASS in claim["metadata"].get("annotations", {}):
            return
        default = default_class(self._every())
        if default is not None:
            claim["spec"]["storageClassName"] = default.metadata.name
