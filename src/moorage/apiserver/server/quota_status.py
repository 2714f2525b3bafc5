"""Quota status: admission counts up what is used of a quota."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.errors import ConflictError, InternalError
from moorage.api.meta import ObjectMeta
from moorage.api.quotas import ResourceQuota
from moorage.api.runtime_group import RuntimeClassQuota
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.quotas import RESOURCE_QUOTA
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))


async def write_quota_used(objects: Objects, quota: ResourceQuota, used: Mapping[str, str]) -> None:
    """Write `status.used` of a quota that is as it was read. Raises ConflictError if it is not."""
    await _write_used(objects, RESOURCE_QUOTA, quota.metadata, used)


async def write_class_quota_used(
    objects: Objects, kind: Kind | None, quota: RuntimeClassQuota, used: Mapping[str, str]
) -> None:
    """Write `status.used` of a quota of the kind as it is served.

    Raises ConflictError, InternalError when the kind is no longer served.
    """
    if kind is None:
        raise InternalError.of(f"RuntimeClassQuota {quota.metadata.name} is not served")
    await _write_used(objects, kind, quota.metadata, used)


async def _write_used(
    objects: Objects, kind: Kind, meta: ObjectMeta, used: Mapping[str, str]
) -> None:
    def make_new(present: Obj | None) -> Obj:
        assert present is not None
        if present["metadata"]["resourceVersion"] != meta.resource_version:
            raise ConflictError.of(kind.plural, meta.name, ConflictError.MODIFIED, group=kind.group)
        return {**present, "status": {**present.get("status", {}), "used": dict(used)}}

    request = Request(user=_USER, user_agent="apiserver", is_own=True)
    await objects.update(
        request, kind, kind.storage, meta.namespace, meta.name, make_new, subresource="status"
    )
