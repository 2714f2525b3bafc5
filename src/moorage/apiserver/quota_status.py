"""Quota status: admission counts up what is used of a quota."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.errors import ConflictError
from moorage.api.quotas import ResourceQuota
from moorage.registry.kind import Obj
from moorage.registry.kinds.resourcequota import RESOURCE_QUOTA
from moorage.registry.objects import Objects
from moorage.registry.request import SYSTEM_MASTERS, Request, User

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))


async def write_quota_used(objects: Objects, quota: ResourceQuota, used: Mapping[str, str]) -> None:
    """Write `status.used` of a quota that is as it was read. Raises ConflictError if it is not."""
    meta, kind = quota.metadata, RESOURCE_QUOTA

    def make_new(present: Obj | None) -> Obj:
        assert present is not None
        if present["metadata"]["resourceVersion"] != meta.resource_version:
            raise ConflictError.of(kind.plural, meta.name, ConflictError.MODIFIED)
        return {**present, "status": {**present.get("status", {}), "used": dict(used)}}

    request = Request(user=_USER, user_agent="apiserver", is_own=True)
    await objects.update(
        request, kind, kind.storage, meta.namespace, meta.name, make_new, subresource="status"
    )
