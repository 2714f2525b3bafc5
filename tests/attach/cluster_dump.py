"""A dump of a cluster, to compare it before an attachment and after a detachment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from moorage.attach.changes import shown
from moorage.attach.served_objects import ServedObjects, key_of
from moorage.wire.client.discovery import discover
from moorage.wire.client.rest import Client

Dump = Mapping[tuple[str, str, str], Any]


async def dump(client: Client, changing: Collection[str]) -> Dump:
    """All objects with our conditions, but for kinds that change by themselves."""
    served = ServedObjects(client)
    found = await discover(client)
    return {
        key_of(obj): shown(obj) | {"ours": _own_conditions(obj)}
        for resource in found.with_verbs("list", "get")
        if resource.kind not in changing
        async for obj in served.list(resource.api_version, resource.kind)
    }


def _own_conditions(obj: dict[str, Any]) -> list[str]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return sorted(one["type"] for one in conditions if "moorage" in one.get("type", ""))
