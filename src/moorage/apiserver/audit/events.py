"""Audit events: what is recorded of a request at each stage, as upstream's JSON.

    received ──▶ RequestReceived
    started  ──▶ ResponseStarted, of streams, and of failed authentications
    ended    ──▶ ResponseComplete, or Panic after a fault of the server

What an event takes from bodies is decoded by the log's thread. Source: audit.k8s.io/v1 `Event`;
apiserver `audit/request.go`, `endpoints/filters/audit.go`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from moorage.api.clock import Clock, format_micro_time
from moorage.apiserver.audit.log_file import AuditLog
from moorage.apiserver.audit.objects import RecordedObjects, object_fields
from moorage.apiserver.audit.policy import (
    API_VERSION,
    COMPLETE,
    LEVEL_NAMES,
    PANIC,
    RECEIVED,
    STARTED,
    AuditPolicy,
    Level,
    Recorded,
)
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.endpoints.routing import Target
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from moorage.wire.metrics import Counter, Family

_LONGEST_AGENT = 1024
_MOST_ADDRESSES = 16
_DECISION, _REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
_EVENT_BYTES = 2048
"""Memory of an event beside its bodies, roughly."""


def audit_families(log: AuditLog) -> Iterator[Family]:
    """Yield how many events were written, and how many lost."""
    events = Counter(
        "apiserver_audit_event_total",
        "Counter of audit events generated and sent to the audit backend.",
    )
    events.count(log.written + log.failed)
    errors = Counter(
        "apiserver_audit_error_total",
        "Counter of audit events that failed to be audited properly. Plugin identifies the plugin "
        "affected by the error.",
        ("plugin",),
    )
    errors.count(log.failed, plugin="log")
    yield from (events, errors)


class AuditEvents:
    """The events of one server: what `policy` selects goes to `log`."""

    def __init__(
        self, policy: AuditPolicy, log: AuditLog, objects: RecordedObjects, clock: Clock
    ) -> None:
        self.log = log
        self.objects = objects
        self.clock = clock
        self._policy = policy

    async def received(
        self,
        http: web.BaseRequest,
        user: User | None,
        target: Target,
        action: Action,
        audit_id: str,
    ) -> AuditedRequest | None:
        """Record a request that was received; None if the policy does not want it recorded.

        Waits while too much is unwritten. `user` is None if authentication failed.
        Raises TimeoutError if it cannot be recorded.
        """
        recorded = self._policy.recorded(user, action)
        if recorded.level is Level.none:
            return None
        audited = AuditedRequest(self, recorded, self.clock.now())
        audited.describe(http, user, target, action, audit_id)
        if not await self.log.room():
            raise TimeoutError("the audit log does not take more events")
        if user is not None:
            audited.add(RECEIVED)
        return audited


class AuditedRequest:
    """A request that is recorded. `annotations` are shared with its `call`, once there is one."""

    def __init__(self, events: AuditEvents, recorded: Recorded, received: datetime) -> None:
        self._events = events
        self._recorded = recorded
        self._received = received
        self._event: Obj = {}
        self._has_started = False
        self.annotations: dict[str, str] = {}
        self.call: Call | None = None

    def describe(
        self,
        http: web.BaseRequest,
        user: User | None,
        target: Target,
        action: Action,
        audit_id: str,
    ) -> None:
        """Set the fields that are known from the beginning."""
        self._event = {
            "auditID": audit_id,
            "requestURI": _printable(http.raw_path),
            "verb": action.verb,
            "user": {} if user is None else _user(user),
            "sourceIPs": _source_addresses(http),
            "userAgent": _user_agent(http),
        }
        if target.is_resource:
            fields = {
                "resource": target.resource,
                "namespace": target.namespace,
                "name": target.name,
                "apiGroup": target.group,
                "apiVersion": target.version,
                "subresource": target.subresource,
            }
            self._event["objectRef"] = {name: text for name, text in fields.items() if text}

    def attach(self, call: Call) -> None:
        """Share the annotations with the call that the request is, and follow its stream."""
        self.call = call
        call.annotations = self.annotations
        call.on_start = self.started

    def impersonated(self, user: User) -> None:
        """Set the user that the request is executed as."""
        self._event["impersonatedUser"] = _user(user)

    def authorized(self, reason: str, *, is_allowed: bool) -> None:
        """Set the decision on the request."""
        self.annotations[_DECISION] = "allow" if is_allowed else "forbid"
        self.annotations[_REASON] = reason

    def failed_authentication(self, message: str) -> None:
        """Record a request whose credentials were refused."""
        self._event["responseStatus"] = {"metadata": {}, "message": message, "code": 401}
        self.add(STARTED)

    def started(self, code: int) -> None:
        """Record that the answer of a stream began, unless that was recorded."""
        if not self._has_started:
            self._has_started = True
            self._event["responseStatus"] = {"metadata": {}, "code": code}
            self.add(STARTED)

    def ended(
        self,
        code: int,
        reply: Reply | None = None,
        status: Obj | None = None,
        *,
        is_fault: bool = False,
    ) -> None:
        """Record the end of a request.

        `code` is the HTTP status, 0 if none was sent; `status` the Status of an error, `is_fault`
        whether that is a fault of the server.
        """
        call = self.call
        if not code:
            # Source: the status that upstream records where none was sent.
            closed = {"metadata": {}, "status": "Success", "message": "Connection closed early"}
            self._event["responseStatus"] = {**closed, "code": 200}
        elif status is not None:
            self._event["responseStatus"] = {"metadata": {}, **_status_fields(status)}
        else:
            self._event["responseStatus"] = {"metadata": {}, "code": code}
        if call is not None and call.is_stream and status is None:
            self.started(code or 200)
        # What follows changes the answer's form.
        self.add(PANIC if is_fault else COMPLETE, call, reply and copy(reply))

    def add(self, stage: str, call: Call | None = None, reply: Reply | None = None) -> None:
        """Add the event of a stage to the log, unless the policy omits the stage."""
        if stage in self._recorded.omitted_stages:
            return
        now = self._received if stage == RECEIVED else self._events.clock.now()
        event = {
            "kind": "Event",
            "apiVersion": API_VERSION,
            "level": LEVEL_NAMES[self._recorded.level],
            "auditID": self._event["auditID"],
            "stage": stage,
            **self._event,
        }
        times = {
            "requestReceivedTimestamp": format_micro_time(self._received),
            "stageTimestamp": format_micro_time(now),
        }
        bodies = None
        held_bytes = _EVENT_BYTES
        if call is not None or reply is not None:
            bodies = partial(self._bodies, call, reply)
            held_bytes += (len(call.body) if call else 0) + (len(reply.body) if reply else 0)
        line = partial(_line, event, times, dict(self.annotations), bodies)
        self._events.log.add(line, held_bytes)

    def _bodies(self, call: Call | None, reply: Reply | None) -> Obj:
        return object_fields(self._events.objects, self._recorded, call, reply)


def _line(
    event: Obj, times: Obj, annotations: dict[str, str], bodies: Callable[[], Obj] | None
) -> bytes:
    """Return the JSON of an event."""
    if bodies is not None:
        added = bodies()
        annotations |= added.pop("annotations", {})
        reference = added.pop("objectRef", {})
        if "objectRef" in event:
            event["objectRef"] = {**reference, **event["objectRef"]}
        status = added.pop("responseStatus", None)
        if status is not None:
            event["responseStatus"] = {"metadata": {}, **_status_fields(status)}
        event.update(added)
    event.update(times)
    if annotations:
        event["annotations"] = annotations
    return msgspec.json.encode(event)


def _status_fields(status: Obj) -> Obj:
    names = ("status", "message", "reason", "details", "code")
    return {name: status[name] for name in names if status.get(name)}


def _user(user: User) -> Obj:
    fields: dict[str, Any] = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {name: value for name, value in fields.items() if value}


def _printable(text: str) -> str:
    """Return text as JSON can hold it: bytes that are not UTF-8 are replaced."""
    return (
        text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")
    )


def _user_agent(http: web.BaseRequest) -> str:
    text = _printable(http.headers.get("User-Agent", ""))
    return text if len(text) <= _LONGEST_AGENT else text[:_LONGEST_AGENT] + "...TRUNCATED"


def _source_addresses(http: web.BaseRequest) -> list[str]:
    """Return the addresses of proxies' headers, then that of the connection.

    Source: apimachinery `net.SourceIPs`. All but the last can be made up by the client.
    """
    named = http.headers.get("X-Forwarded-For", "").split(",")[:_MOST_ADDRESSES]
    addresses = [address for text in named if (address := _address(text))]
    real = _address(http.headers.get("X-Real-Ip", ""))
    if real and real not in addresses:
        addresses.append(real)
    remote = _address(http.remote or "")
    if remote and remote not in addresses[-1:]:
        addresses.append(remote)
    return addresses


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""
