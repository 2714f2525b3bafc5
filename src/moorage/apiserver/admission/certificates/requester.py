"""What the server writes in certificate requests: who asks, and when conditions changed.

Upstream's registry does so when it prepares a write. Source: registry `certificates/strategy` of
Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api.certificates import GROUP
from moorage.api.clock import Clock, format_time
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes, User

_WRITTEN = ("username", "uid", "groups", "extra")


class CertificateRequester:
    """Sets the requester of new requests, and missing times of conditions."""

    name = "CertificateRequester"
    scope = Scope.of(
        [f"certificatesigningrequests.{GROUP}"], [CREATE, UPDATE], ["", "approval", "status"]
    )
    validate = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.mutate = self._complete

    def _complete(self, attributes: Attributes) -> None:
        obj = attributes.obj
        assert obj is not None
        if attributes.operation == CREATE:
            _set_requester(obj["spec"], attributes.request.user)
        elif attributes.subresource:
            assert attributes.old is not None
            _set_times(obj, attributes.old, format_time(self._clock.now()))


def _set_requester(spec: Obj, user: User) -> None:
    known = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    for field in _WRITTEN:
        spec.pop(field, None)
        if known[field]:
            spec[field] = known[field]


def _set_times(new: Obj, old: Obj, now: str) -> None:
    """Set the missing times. A condition with the status that it had keeps its transition time."""
    since = {
        (condition.get("type"), condition.get("status")): condition["lastTransitionTime"]
        for condition in reversed(old.get("status", {}).get("conditions", []))
        if condition.get("lastTransitionTime")
    }
    for condition in new.get("status", {}).get("conditions", []):
        condition.setdefault("lastUpdateTime", now)
        key = (condition.get("type"), condition.get("status"))
        condition.setdefault("lastTransitionTime", since.get(key, now))
