"""One API call after authentication and routing: what the verbs work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from moorage.api.errors import UnsupportedMediaTypeError
from moorage.apiserver.negotiation import Representation, body_media, negotiate
from moorage.apiserver.routing import Target
from moorage.registry.codec import Media
from moorage.registry.kind import Kind, Served
from moorage.registry.request import User


@dataclass(slots=True)
class Call:
    """A request for a resource. `audit_id` names it in answers and logs.

    `require(verb)` raises ForbiddenError unless the user may do that too, to the same target: some
    requests turn out to be more than the verb they were let in with.
    `body` is whole: work on a request begins when it has arrived.
    """

    http: web.BaseRequest
    user: User
    target: Target
    verb: str
    kind: Kind
    served: Served
    audit_id: str
    require: Callable[[str], None]
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query

    @property
    def user_agent(self) -> str:
        """The User-Agent; what is not UTF-8 in it is replaced, as Go prints it."""
        text = self.http.headers.get("User-Agent", "")
        if text.isascii():
            return text
        return text.encode(errors="surrogateescape").decode(errors="replace")

    @property
    def namespace(self) -> str:
        """The namespace the object is in: none for cluster-scoped kinds."""
        return self.target.namespace if self.kind.is_namespaced else ""

    @property
    def place(self) -> tuple[Kind, Served, str, str]:
        """What the path names, as the registry takes it: kind, version, namespace, name."""
        return self.kind, self.served, self.namespace, self.target.name

    def form(self, *transforms: str) -> Representation:
        """The form of the answer. Raises NotAcceptableError."""
        return negotiate(self.http.headers.get("Accept", ""), frozenset(transforms))

    def media(self) -> Media:
        """How the body is written. Raises UnsupportedMediaTypeError."""
        if self.http.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMediaTypeError("request bodies must not be compressed")
        return body_media(self.http.headers.get("Content-Type", ""))
