"""Request handler: authenticates, routes, authorizes and answers every request.

Every error becomes a Status with the right code; an internal error is logged with the audit ID of
the request and answered with 500, and the server keeps running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import getrandbits

from aiohttp import web

from moorage.api import fields, labels
from moorage.api.errors import (
    BadRequestError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    StatusError,
    TooManyRequestsError,
)
from moorage.api.fields import FieldSelector
from moorage.api.labels import Selector
from moorage.api.logs import Log
from moorage.apiserver.authentication import Authenticator
from moorage.apiserver.authentication.authenticator import websocket_token
from moorage.apiserver.authentication.impersonation import impersonated
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.bodies import Bodies, BodyLimits
from moorage.apiserver.call import Call
from moorage.apiserver.replies import (
    Reply,
    Sender,
    error_reply,
    not_found_page,
    overloaded,
    prettified,
)
from moorage.apiserver.resources import Resources
from moorage.apiserver.reviews import Reviews
from moorage.apiserver.routing import Target, is_true, parse_path, verb_of
from moorage.apiserver.slots import SlotLimits, Slots, is_stream, share_of
from moorage.apiserver.watch import WatchStreams
from moorage.registry.kind import Kind, Served
from moorage.registry.rbac import Action
from moorage.registry.request import ANONYMOUS, User
from moorage.registry.resource_map import ResourceMap
from moorage.serving import is_proven, prove

Answer = Callable[[Call], Awaitable[Reply | web.StreamResponse]]
Page = Callable[[web.BaseRequest], Reply | None]
"""Serves a path outside the resources; returns None for paths of other pages."""

_BODY_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Subresources:
    """(plural, subresource, verb) → handler. `any_kind` holds those that every kind shares."""

    own: Mapping[tuple[str, str, str], Answer]
    any_kind: Mapping[tuple[str, str], Answer]

    def find(self, call: Call) -> Answer | None:
        plural, subresource = call.kind.plural, call.target.subresource
        own = self.own.get((plural, subresource, call.verb))
        return own or self.any_kind.get((subresource, call.verb))


class Handler:
    """The function behind the HTTP server."""

    def __init__(
        self,
        *,
        resource_map: ResourceMap,
        authenticator: Authenticator,
        authorizer: Authorizer,
        resources: Resources,
        watches: WatchStreams,
        reviews: Reviews,
        subresources: Subresources,
        pages: Sequence[Page],
        slots: SlotLimits,
        bodies: BodyLimits,
    ) -> None:
        self._resource_map = resource_map
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._reviews = reviews
        self._subresources = subresources
        self._pages = pages
        self._slots = Slots(slots)
        self._bodies = Bodies(bodies)
        self._sender = Sender()
        self._verbs: dict[str, Answer] = {
            "get": resources.get,
            "list": resources.list,
            "create": resources.create,
            "update": resources.update,
            "patch": resources.patch,
            "delete": resources.delete,
            "deletecollection": resources.delete_collection,
            "watch": watches.serve,
        }

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        audit_id = _audit_id()
        share = ""
        try:
            _check_text(http)
            user = self._user(http)
            share = share_of(user)
            answer = await self._answer(http, user, share, audit_id)
        except StatusError as error:
            answer = error_reply(error)
        except (RecursionError, UnicodeError, OverflowError) as error:
            # Decoders refuse nearly all of these; the rest is still a client error, not an
            # internal one.
            log.info("unreadable request", request=audit_id, method=http.method, error=str(error))
            answer = error_reply(BadRequestError(f"the request cannot be read: {_text(error)}"))
        except web.HTTPException as error:
            # The HTTP library refused the websocket handshake.
            answer = error_reply(BadRequestError(error.text or error.reason))
        except (asyncio.CancelledError, ConnectionResetError):
            raise
        except Exception:
            log.exception("request broke", request=audit_id, method=http.method, path=http.path)
            answer = error_reply(InternalError.of("see the server's log"))
        if isinstance(answer, web.StreamResponse):
            return answer
        user_agent = http.headers.get("User-Agent", "")
        prettified(answer, user_agent, is_asked=is_true(http.query, "pretty"))
        return await self._sender.send(http, answer, audit_id, share)

    async def _answer(
        self, http: web.BaseRequest, user: User, share: str, audit_id: str
    ) -> Reply | web.StreamResponse:
        target = parse_path(http.path)
        verb = verb_of(http.method, target, http.query)
        selector = _field_selector(http.query.get("fieldSelector", ""))
        action = _action(verb, target, selector)
        label_selector = _label_selector(http.query.get("labelSelector", ""))
        self._authorizer.check(user, action, selector, label_selector)
        if http.method == "CONNECT":
            raise MethodNotAllowedError
        if not target.is_resource:
            return self._page(http)
        if not self._resource_map.has_group(target.group):
            return not_found_page()
        kind, served = self._kind(target)
        require = partial(self._require, user, action)
        call = Call(http, user, target, verb, kind, served, audit_id, require)
        answer = self._answer_for(call)
        if is_stream(verb, target.subresource):
            reply = await answer(call)
        else:
            work = self._with_body if http.method in _BODY_METHODS else self._in_slot
            reply = await work(call, share, answer)
        if isinstance(reply, Reply) and served.warning:
            reply.warnings = [served.warning, *reply.warnings]
        return reply

    async def _with_body(
        self, call: Call, share: str, answer: Answer
    ) -> Reply | web.StreamResponse:
        """Read the body, then answer within a slot."""
        call.body = await self._bodies.read(call.http, share)
        try:
            return await self._in_slot(call, share, answer)
        finally:
            self._bodies.release(share, len(call.body))

    async def _in_slot(self, call: Call, share: str, answer: Answer) -> Reply | web.StreamResponse:
        lane = self._slots.lane(call.verb)
        if not lane.take(share):
            return overloaded()
        try:
            return await answer(call)
        finally:
            lane.give_back(share)

    def _user(self, http: web.BaseRequest) -> User:
        transport = http.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        headers = http.headers
        user = self._authenticator.authenticate(headers, certificate, websocket_token(headers))
        if user.name != ANONYMOUS and not is_proven(http) and not prove(http, share_of(user)):
            raise TooManyRequestsError(
                "too many connections of this user are open, please try again later",
                {"retryAfterSeconds": 1},
            )
        return impersonated(user, headers, self._authorizer.is_allowed)

    def _require(self, user: User, action: Action, verb: str) -> None:
        """Authorize another verb on the target of an authorized request."""
        if action.verb != verb:
            self._authorizer.check(user, replace(action, verb=verb))

    def _kind(self, target: Target) -> tuple[Kind, Served]:
        resource = self._resource_map.find(target.group, target.version, target.resource)
        if resource is None:
            raise NotFoundError.no_such_resource()
        kind, _ = resource
        if target.namespace and not kind.is_namespaced and kind.plural != "namespaces":
            raise NotFoundError.no_such_resource()
        return resource

    def _answer_for(self, call: Call) -> Answer:
        """Return the handler of the call. Raises NotFoundError, MethodNotAllowedError."""
        kind, target, verb = call.kind, call.target, call.verb
        if target.subresource:
            subresource = kind.subresources.get(target.subresource)
            if subresource is None:
                raise NotFoundError.no_such_resource()
            answer = self._subresources.find(call)
            if verb not in subresource.verbs or answer is None:
                raise MethodNotAllowedError
            return answer
        if verb not in kind.verbs or not _fits_path(call):
            raise MethodNotAllowedError
        if not kind.is_stored:
            return self._reviews.create
        return self._verbs[verb]

    def _page(self, http: web.BaseRequest) -> Reply:
        for page in self._pages:
            reply = page(http)
            if reply is not None:
                return reply
        parts = [part for part in http.path.split("/") if part]
        if len(parts) >= 3 and parts[0] == "apis" and self._resource_map.has_group(parts[1]):
            raise NotFoundError.no_such_resource()
        return not_found_page()


def _check_text(http: web.BaseRequest) -> None:
    """Refuse text that is not UTF-8: the HTTP library passes such bytes as lone surrogates.

    A User-Agent may contain any bytes, as upstream. Raises BadRequestError.
    """
    if not _is_utf8(http.path + http.query_string):
        raise BadRequestError("the request's path and query must be UTF-8")
    # Hot path: one check for all values.
    if _is_utf8("".join(http.headers.values())):
        return
    for name, value in http.headers.items():
        if not _is_utf8(value) and name.lower() != "user-agent":
            raise BadRequestError("the values of the request's headers must be UTF-8")


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OverflowError):
        return "a number in it is too large"
    return "it holds text that is not UTF-8"


def _fits_path(call: Call) -> bool:
    """Return whether the method is defined on this collection or object."""
    kind, target = call.kind, call.target
    if call.verb == "create":
        return not target.name and (bool(target.namespace) or not kind.is_namespaced)
    if call.verb in ("update", "patch") and not target.name:
        return False
    return not (target.name and kind.is_namespaced and not target.namespace)


def _field_selector(text: str) -> FieldSelector:
    """Return the selector for authorizers: one that does not parse selects everything."""
    try:
        return fields.parse(text) if text else fields.EVERYTHING
    except ValueError:
        return fields.EVERYTHING


def _label_selector(text: str) -> Selector:
    """Return the selector for authorizers: one that does not parse selects everything."""
    try:
        return labels.parse(text) if text else labels.EVERYTHING
    except ValueError:
        return labels.EVERYTHING


def _action(verb: str, target: Target, selector: FieldSelector) -> Action:
    if not target.is_resource:
        return Action(verb=verb, path=target.path)
    name = target.name
    if not name and verb in ("list", "watch"):
        # A list with `metadata.name=` in its field selector is authorized by that name.
        name = selector.required_value("metadata.name") or ""
    return Action(
        verb=verb,
        group=target.group,
        resource=target.resource,
        subresource=target.subresource,
        namespace=target.namespace,
        name=name,
    )


def _audit_id() -> str:
    """Return 128 random bits in the form of a UUID. Identifies, but authorizes nothing."""
    digits = f"{getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
