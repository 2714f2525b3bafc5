"""Ingress classes. Source: networking.k8s.io/v1."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta

IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
"""Annotation of the class for Ingresses that name none."""
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
"""Annotation that named an Ingress's class before `spec.ingressClassName`."""


class IngressClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()

    @property
    def is_default(self) -> bool:
        return self.metadata.annotations.get(IS_DEFAULT) == "true"
