"""Quick reads: GET requests of one object that are answered as soon as their bytes arrive.

    bytes of a request ─▶ header lines known? ─▶ request line known? ─▶ user, authorization, seat
                                                                     ─▶ bytes of the stored object

Clients send the same header lines again and again, and read the same objects. What both say is kept
from requests that the handler answered; user, authorization, flow control and the object are those
of now. Whatever is not the plain case (no seat, an error, an unknown line) is left to the handler,
which answers it from the start. Hot path: 15 µs per request (bench/requests.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import StatusError
from moorage.apiserver.authentication import Authenticator
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.endpoints.call import Call, share_of
from moorage.apiserver.endpoints.negotiation import Representation, negotiate
from moorage.apiserver.endpoints.replies import Reply, whole_answer
from moorage.apiserver.endpoints.representations import object_body
from moorage.apiserver.endpoints.routing import Target, route_of
from moorage.apiserver.flow_control import FlowControl
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.server.heads import RequestHead
from moorage.apiserver.server.served_requests import AuditIds, RequestSeries, ServedRequests
from moorage.apiserver.storage import WatchCache
from moorage.wire.serving import HttpConnection

_KEPT = 4096
_LONGEST_BYTES = 2048
_LONGEST_BODY_BYTES = 16 * 1024
"""A longer answer may fill the connection's buffer: the handler waits for slow clients."""

T = TypeVar("T")

_LINE_END = b"\r\n"
_PLAIN_LINE = (b"GET /api", b" HTTP/1.1")


class _Read(msgspec.Struct, frozen=True):
    """What a request line says: an object that is served as it is stored."""

    target: Target
    action: Action
    kind: Kind
    served: Served
    key: str
    series: RequestSeries


class QuickReads:
    """Answers the requests of one server that are like earlier ones.

    `is_elsewhere` returns whether an extension server answers requests of a target.
    """

    def __init__(
        self,
        *,
        resource_map: ResourceMap,
        authenticator: Authenticator,
        authorizer: Authorizer,
        flow_control: FlowControl,
        requests: ServedRequests,
        cache: WatchCache[Stored],
        codec: Codec,
        is_elsewhere: Callable[[Target], bool],
        clock: Clock,
    ) -> None:
        self._resource_map = resource_map
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._flow_control = flow_control
        self._in_flight = requests.in_flight("get")
        self._requests = requests
        self._cache = cache
        self._codec = codec
        self._is_elsewhere = is_elsewhere
        self._clock = clock
        self._audit_ids = AuditIds()
        self._heads: dict[bytes, RequestHead] = {}
        self._reads: dict[bytes, _Read] = {}
        resource_map.listen(self._reads.clear)

    def answer(self, connection: HttpConnection, data: bytes) -> bytes | None:
        """Return the whole answer to a request; None for one that the handler has to answer."""
        line, _, fields = data.partition(_LINE_END)
        head = self._heads.get(fields)
        if head is None:
            return None
        read = self._reads.get(line)
        # The connection of a user is registered by the handler, with its first request.
        if read is None or not connection.is_proven:
            return None
        began_s = self._clock.monotonic()
        try:
            user = self._authenticator.identify(head.token, connection.certificate)
            form = negotiate(head.accept, True, not read.kind.is_custom)
        except StatusError:
            return None
        item = self._cache.get(read.key)
        if (
            item is None
            or not _is_plain(form)
            or not self._authorizer.decide(user, read.action).is_allowed
            or self._is_elsewhere(read.target)
        ):
            return None
        body = object_body(self._codec, read.kind, read.served, item, form, {})
        if len(body) > _LONGEST_BODY_BYTES:
            return None
        flow = self._flow_control.flow_of(user, "get", read.target)
        if not self._flow_control.pass_through(flow, share_of(user)):
            return None
        ended_s = self._clock.monotonic()
        self._in_flight.pass_through(ended_s)
        read.series.count(200, head.system_client, ended_s - began_s)
        reply = Reply(body, content_type=form.content_type)
        return whole_answer(reply, self._audit_ids(), flow.lines)

    def learn(self, call: Call, head: RequestHead) -> None:
        """Keep what a request says, which the handler answered, if the next ones can be quick."""
        connection = call.http.protocol
        if not isinstance(connection, HttpConnection) or connection.whole_request is None:
            return
        target = call.target
        # The kind may have been replaced while the request waited for a seat.
        if self._resource_map.find(target.group, target.version, target.resource) != (
            call.kind,
            call.served,
        ):
            return
        line, _, fields = connection.whole_request.partition(_LINE_END)
        if _is_plain_line(line, call) and line not in self._reads:
            _keep(self._reads, line, self._read(call))
        if _is_plain_head(call, head) and fields not in self._heads:
            _keep(self._heads, fields, head)

    def _read(self, call: Call) -> _Read:
        return _Read(
            call.target,
            route_of("GET", call.target.path).action,
            call.kind,
            call.served,
            call.kind.key(call.namespace, call.target.name),
            self._requests.series(call),
        )


def _is_plain(form: Representation) -> bool:
    """Return whether an object in this form is sent as it is stored, or as its message."""
    return not form.as_ and not form.is_indented and form.media in (Media.JSON, Media.PROTOBUF)


def _is_plain_line(line: bytes, call: Call) -> bool:
    """Return whether a request line names an object that is served as it is stored."""
    begin, end = _PLAIN_LINE
    kind, target = call.kind, call.target
    return (
        line.startswith(begin)
        and line.endswith(end)
        and not call.http.query_string
        and bool(target.name)
        and not target.subresource
        and not target.is_watch
        and kind.is_stored
        and kind.view is None
        and not call.served.warning
        and len(line) <= _LONGEST_BYTES
    )


def _is_plain_head(call: Call, head: RequestHead) -> bool:
    """Return whether requests with the same header lines can be answered at once."""
    return (
        call.http.keep_alive
        and not head.is_impersonating
        and not head.is_of_people
        and sum(len(name) + len(value) for name, value in call.http.raw_headers) <= _LONGEST_BYTES
    )


def _keep(kept: dict[bytes, T], key: bytes, value: T) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
