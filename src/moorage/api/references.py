"""Object references. Source: core/v1 `ObjectReference`."""

from __future__ import annotations

from moorage.api.meta import Object


class ObjectReference(Object, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""
