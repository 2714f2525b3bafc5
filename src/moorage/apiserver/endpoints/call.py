"""API call: a request after authentication and routing, as the verbs take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from moorage.api.errors import NotAcceptableError, UnsupportedMediaTypeError
from moorage.apiserver.endpoints.negotiation import (
    PARTIAL_LIST,
    Representation,
    body_media,
    check_representable,
    check_shape,
    check_streamed,
    negotiate,
)
from moorage.apiserver.endpoints.routing import Target, is_stream
from moorage.apiserver.registry.codec import Media
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.request import User

# Shares of users: under which name what a user holds is counted.
#
# Bodies, long answers, connections and requests to extension servers are limited for each user.
# Administrators and the system's components are exempt: no load from pods can keep nodes from
# reporting or controllers from working. Requests themselves have seats, see `flow_control`.

_EXEMPT_GROUPS = frozenset({"system:masters", "system:nodes"})
_EXEMPT_USERS = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})


def share_of(user: User) -> str:
    """Return the key that counts what a user holds.

    Empty for users exempt from the limits: administrators and cluster components.
    """
    if user.name in _EXEMPT_USERS or not _EXEMPT_GROUPS.isdisjoint(user.groups):
        return ""
    return user.name


class Call(msgspec.Struct):
    """A request for a resource. `audit_id` identifies it in responses and logs.

    `require(verb)` raises ForbiddenError unless the user may also use that verb on the same target:
    some requests need more than the verb they were authorized for.
    `annotations` are those of its audit event; `on_start` is called with the status of a stream
    when it begins. `accept` is the Accept header. `body` is complete: processing starts when it has
    arrived. `headers` go with the answer, that of a stream too.
    """

    http: web.BaseRequest
    user: User
    target: Target
    verb: str
    kind: Kind
    served: Served
    audit_id: str
    require: Callable[[str], None]
    accept: str = ""
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    warnings: list[str] = msgspec.field(default_factory=list)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    on_start: Callable[[int], None] | None = None

    def started(self, code: int) -> None:
        """Note that the answer of a stream began, with this HTTP status."""
        if self.on_start is not None:
            self.on_start(code)

    @property
    def is_stream(self) -> bool:
        """Return whether the request is a stream, which lasts as long as its client wants."""
        return is_stream(self.verb, self.target.subresource)

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query

    @property
    def user_agent(self) -> str:
        """Return the User-Agent; bytes that are not UTF-8 are replaced, as Go prints them."""
        text = self.http.headers.get("User-Agent", "")
        if text.isascii():
            return text
        return text.encode(errors="surrogateescape").decode(errors="replace")

    @property
    def namespace(self) -> str:
        """Return the namespace of the object: empty for cluster-scoped kinds."""
        return self.target.namespace if self.kind.is_namespaced else ""

    @property
    def place(self) -> tuple[Kind, Served, str, str]:
        """Return the registry's arguments for the path: kind, version, namespace, name."""
        return self.kind, self.served, self.namespace, self.target.name

    def form(self, *, is_list: bool = False, allows_protobuf: bool = True) -> Representation:
        """Negotiate the form of an object or list. Raises NotAcceptableError."""
        form = self._negotiated() if allows_protobuf else negotiate(self.accept, True, False)
        if form.as_:
            check_shape(form, _go_type(self.kind, is_list=is_list), is_list=is_list)
        return form

    def stream_form(self) -> Representation:
        """Negotiate the form of a watch. Raises NotAcceptableError."""
        form = self._negotiated()
        check_streamed(form)
        # Upstream cannot make lists of events' objects either, and sends these whole.
        return Representation(form.media) if form.as_ == PARTIAL_LIST else form

    def document_form(self) -> Representation:
        """Negotiate the form of a document that is no stored object. Raises NotAcceptableError."""
        return negotiate(self.accept, False, True)

    def _negotiated(self) -> Representation:
        if self.kind.is_custom:
            return negotiate(self.accept, True, False)
        try:
            return negotiate(self.accept, True, True)
        except NotAcceptableError:
            check_representable(self.accept, is_collection=self.verb in ("list", "watch"))
            raise

    def media(self) -> Media:
        """Return the media type of the body. Raises UnsupportedMediaTypeError."""
        if self.http.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMediaTypeError("request bodies must not be compressed")
        return body_media(self.http.headers.get("Content-Type", ""))


def _go_type(kind: Kind, *, is_list: bool) -> str:
    """Return upstream's name of the type of an object or list, which some errors have."""
    name = kind.list_kind if is_list else kind.name
    if kind.is_custom:
        return f"*unstructured.Unstructured{'List' if is_list else ''}"
    return f"*{kind.group.partition('.')[0] or 'core'}.{name}"
