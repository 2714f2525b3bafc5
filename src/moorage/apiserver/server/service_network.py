"""ServiceCIDR `kubernetes`: the network of cluster IPs, without which no service is created.

Source: controlplane `defaultservicecidr` of Kubernetes 1.37.
"""

from __future__ import annotations

import ipaddress

from moorage.api.clock import Clock, format_time
from moorage.api.errors import AlreadyExistsError
from moorage.api.logs import Log
from moorage.api.service_networks import DEFAULT_NAME, READY
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.networking import SERVICE_CIDR
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


async def write_service_network(
    objects: Objects, network: ipaddress.IPv4Network, clock: Clock
) -> None:
    """Create the ServiceCIDR where it is absent, and say that it is ready.

    One with another network stays as it is, and so does a condition that another has set.
    """
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")
    wanted = {"metadata": {"name": DEFAULT_NAME}, "spec": {"cidrs": [str(network)]}}
    present = objects.find(SERVICE_CIDR, "", DEFAULT_NAME)
    if present is None:
        try:
            present = await objects.create(request, SERVICE_CIDR, SERVICE_CIDR.storage, "", wanted)
        except AlreadyExistsError:
            present = objects.get(SERVICE_CIDR, "", DEFAULT_NAME)
    if present.obj["spec"] != wanted["spec"]:
        log.warning("another default ServiceCIDR", has=present.obj["spec"], wanted=str(network))
        return
    if _is_decided(present.obj) or "deletionTimestamp" in present.obj["metadata"]:
        return
    condition = {
        "type": READY,
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": format_time(clock.now()),
    }

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        return {**old, "status": {"conditions": [condition]}}

    await objects.update(
        request, SERVICE_CIDR, SERVICE_CIDR.storage, "", DEFAULT_NAME, make_new,
        subresource="status",
    )  # fmt: skip


def _is_decided(service_cidr: Obj) -> bool:
    conditions = service_cidr.get("status", {}).get("conditions", [])
    return any(one["type"] == READY and one["status"] in ("True", "False") for one in conditions)
