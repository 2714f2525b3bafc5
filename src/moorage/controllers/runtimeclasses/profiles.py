"""Profiles of all nodes, as the controllers of runtimes share them: one watch, few fields kept.

A cluster of 5,000 nodes has 50,000 profiles of a hundred features each. Handlers of the informer
see a profile whole; what stays of it is its node, handler, isolation, whether it works, and which
handler it is under a second name.
"""

from __future__ import annotations

from sys import intern

from moorage.api.clock import Clock
from moorage.api.meta import Condition, ObjectMeta
from moorage.api.runtime_profiles import (
    WORKING,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import RUNTIME_PROFILES
from moorage.wire.client.rest import Client

PROFILE_HANDLER, PROFILE_NODE = "handler", "node"
"""Indexes of the informer."""
_AT_ONCE = 50
"""Profiles of a page."""


def profile_informer(client: Client, clock: Clock) -> Informer[RuntimeProfile]:
    """Return an informer of all profiles, indexed by handler and by node."""
    return Informer(
        client,
        RUNTIME_PROFILES,
        clock=clock,
        keep=_kept,
        page_size=_AT_ONCE,
        indexes={
            PROFILE_HANDLER: lambda profile: [profile.spec.handler],
            PROFILE_NODE: lambda profile: [profile.spec.node_name],
        },
    )


_conditions = {status: (Condition(type=WORKING, status=status),) for status in ("True", "False")}


def _kept(profile: RuntimeProfile) -> RuntimeProfile:
    meta, spec, status = profile.metadata, profile.spec, profile.status
    working = next((one.status for one in status.conditions if one.type == WORKING), "")
    return RuntimeProfile(
        metadata=ObjectMeta(name=meta.name, uid=meta.uid, resource_version=meta.resource_version),
        spec=RuntimeProfileSpec(node_name=intern(spec.node_name), handler=intern(spec.handler)),
        status=RuntimeProfileStatus(
            isolation=intern(status.isolation),
            same_as=intern(status.same_as),
            conditions=_conditions.get(working, ()),
        ),
    )
