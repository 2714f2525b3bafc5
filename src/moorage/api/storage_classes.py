"""Storage classes. Source: storage.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.meta import Object, ObjectMeta

IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the class for claims that name none."""
_WAS_DEFAULT = "storageclass.beta.kubernetes.io/is-default-class"


def is_marked_default(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations make a class the default one."""
    return "true" in (annotations.get(IS_DEFAULT), annotations.get(_WAS_DEFAULT))


class StorageClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    allow_volume_expansion: bool | None = None

    @property
    def is_default(self) -> bool:
        return is_marked_default(self.metadata.annotations)
