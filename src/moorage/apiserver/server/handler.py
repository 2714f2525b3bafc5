"""Request handler: authenticates, routes, authorizes and answers every request.

Every error becomes a Status with the right code; an internal error is logged with the audit ID of
the request and answered with 500, and the server keeps running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
from aiohttp import web
from msgspec.structs import replace

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
from moorage.apiserver.audit import AuditedRequest, AuditEvents
from moorage.apiserver.authentication import Authenticator
from moorage.apiserver.authentication.impersonation import impersonated
from moorage.apiserver.authorization import Authorizer, refusal
from moorage.apiserver.endpoints.bodies import Bodies, BodyLimits
from moorage.apiserver.endpoints.call import Call, share_of
from moorage.apiserver.endpoints.negotiation import error_form
from moorage.apiserver.endpoints.replies import (
    Reply,
    ReplyLimits,
    Sender,
    as_message,
    error_reply,
    not_found_page,
    prettified,
)
from moorage.apiserver.endpoints.resources import Resources
from moorage.apiserver.endpoints.routing import (
    Target,
    action_of,
    is_stream,
    parse_path,
    route_of,
    verb_of,
)
from moorage.apiserver.endpoints.watch import WatchStreams
from moorage.apiserver.flow_control import Flow, FlowControl
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import ANONYMOUS, User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.server.heads import RequestHead, RequestHeads, check_text
from moorage.apiserver.server.own_endpoints import is_health_path
from moorage.apiserver.server.quick_reads import QuickReads
from moorage.apiserver.server.request_deadlines import (
    RequestDeadline,
    RequestDeadlines,
    RequestLimits,
    timed_out,
    write_timed_out,
)
from moorage.apiserver.server.seating import Seating
from moorage.apiserver.server.served_requests import AuditIds, ServedRequests, code_of
from moorage.wire.serving import is_proven, peer_certificate, prove

Answer = Callable[[Call], Awaitable[Reply | web.StreamResponse]]
Page = Callable[[web.BaseRequest], Reply | Awaitable[Reply] | None]
"""Serves a path outside the resources; returns None for paths of other pages."""

# Source: Go's `strconv.ParseBool`.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_NO_HEAD = RequestHead(token=None, accept="", user_agent="", is_impersonating=False)


class Foreign(msgspec.Struct, frozen=True):
    """An authorized request that an extension server may have to answer."""

    http: web.BaseRequest
    user: User
    target: Target
    verb: str
    share: str
    audit_id: str


Elsewhere = Callable[[Foreign], Callable[[], Awaitable[Reply | web.StreamResponse]] | None]
"""Returns what passes a request on, None for one that is answered here."""

_Routed = tuple[Target, str, Action, tuple[FieldSelector, Selector]]
"""What a request is about, its verb, the action to authorize, its selectors."""

_EVERYTHING = (fields.EVERYTHING, labels.EVERYTHING)
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})

log = Log(__name__)


class Subresources(msgspec.Struct, frozen=True):
    """(plural, subresource, verb) → handler. `any_kind` holds those that every kind shares."""

    own: Mapping[tuple[str, str, str], Answer]
    any_kind: Mapping[tuple[str, str], Answer]

    def find(self, call: Call) -> Answer | None:
        plural, subresource = call.kind.plural, call.target.subresource
        own = self.own.get((plural, subresource, call.verb))
        return own or self.any_kind.get((subresource, call.verb))


class Handler:
    """The function behind the HTTP server.

    `unstored` has the verbs of the kinds whose objects are not stored, by qualified plural.
    """

    def __init__(
        self,
        *,
        resource_map: ResourceMap,
        authenticator: Authenticator,
        authorizer: Authorizer,
        resources: Resources,
        watches: WatchStreams,
        unstored: Mapping[str, Mapping[str, Answer]],
        subresources: Subresources,
        pages: Sequence[Page],
        flow_control: FlowControl,
        bodies: BodyLimits,
        limits: RequestLimits,
        replies: ReplyLimits,
        to_protobuf: Callable[[str, Obj], bytes],
        requests: ServedRequests,
        quick_reads: QuickReads,
        elsewhere: Elsewhere | None = None,
        audit: AuditEvents | None = None,
    ) -> None:
        """`elsewhere` passes requests on that this server does not answer itself."""
        self._elsewhere = elsewhere
        self._quick_reads = quick_reads
        self._to_protobuf = to_protobuf
        self._requests = requests
        self._audit = audit
        self._resource_map = resource_map
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._unstored = unstored
        self._subresources = subresources
        self._pages = pages
        self._seating = Seating(flow_control, requests)
        self._bodies = Bodies(bodies)
        self._limits = limits
        self._deadlines = RequestDeadlines(limits)
        self._sender = Sender(replies)
        self._heads = RequestHeads()
        self._audit_ids = AuditIds()
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
        audit_id = self._audit_ids()
        share = lines = ""
        head = _NO_HEAD
        audited: AuditedRequest | None = None
        status: StatusError | None = None
        is_fault = False
        try:
            check_text(http)
            head = self._heads.of(http)
            user = self._user(http, head)
            routed = _routed(http)
            if self._audit is not None:
                audited = await self._received(self._audit, http, user, audit_id, routed)
            if head.is_impersonating:
                user = self._impersonated(http, user, audited)
            share = share_of(user)
            flow = self._seating.flow_of(user, routed[1], routed[0])
            if flow is not None:
                lines = flow.lines
            answer = await self._answer(http, head, user, share, audit_id, audited, routed, flow)
        except StatusError as error:
            if error.status_code == 401 and audited is None and self._audit is not None:
                await self._audit_refused(self._audit, http, audit_id)
            status = error
            accept = head.accept or http.headers.get("Accept", "")
            answer = error_reply(error, error_form(accept))
        except (RecursionError, UnicodeError, OverflowError) as error:
            # Decoders refuse nearly all of these; the rest is still a client error, not an
            # internal one.
            log.info("unreadable request", request=audit_id, method=http.method, error=str(error))
            status = BadRequestError(f"the request cannot be read: {error_text(error)}")
            answer = error_reply(status)
        except web.HTTPException as error:
            # The HTTP library refused the websocket handshake.
            status = BadRequestError(error.text or error.reason)
            answer = error_reply(status)
        except (asyncio.CancelledError, ConnectionResetError) as error:
            if audited is not None:
                audited.ended(code_of(error, audited.call) if audited.call is not None else 0)
            raise
        except Exception:
            log.exception("request broke", request=audit_id, method=http.method, path=http.path)
            status, is_fault = InternalError.of("see the server's log"), True
            answer = error_reply(status)
        if audited is not None:
            audited.ended(
                answer.status,
                answer if isinstance(answer, Reply) else None,
                None if status is None else status.to_object(),
                is_fault=is_fault,
            )
        if isinstance(answer, web.StreamResponse):
            return answer
        prettified(as_message(answer, self._to_protobuf), is_wanted=_is_pretty(http, head))
        return self._sender.response(http, answer, audit_id, share, lines)

    async def _answer(
        self,
        http: web.BaseRequest,
        head: RequestHead,
        user: User,
        share: str,
        audit_id: str,
        audited: AuditedRequest | None,
        routed: _Routed,
        flow: Flow | None,
    ) -> Reply | web.StreamResponse:
        target, verb, action, selectors = routed
        limit_s = None if is_stream(verb, target.subresource) else self._limits.seconds(http)
        decision = self._authorizer.decide(user, action, *selectors)
        if audited is not None:
            audited.authorized(decision.reason, is_allowed=decision.is_allowed)
        if not decision.is_allowed:
            raise refusal(user, action, decision.reason)
        if http.method == "CONNECT":
            raise MethodNotAllowedError
        if self._elsewhere is not None:
            passed_on = self._elsewhere(Foreign(http, user, target, verb, share, audit_id))
            if passed_on is not None:
                if target.is_resource or flow is None:
                    return await passed_on()
                return await self._seating.page(passed_on, user, target, share, flow)
        if not target.is_resource:
            if flow is None or is_health_path(target.path):
                return await self._page(http)
            deadline = self._deadlines.begin(limit_s)
            try:
                page = partial(self._page, http)
                return await self._seating.page(page, user, target, share, flow)
            except asyncio.CancelledError:
                if not deadline.has_expired():
                    raise
                return timed_out()
            finally:
                self._deadlines.end(deadline)
        resource = self._resource_map.find(target.group, target.version, target.resource)
        if resource is None and not self._resource_map.has_group(target.group):
            return not_found_page()
        kind, served = _checked(resource, target)
        require = partial(self._require, user, action)
        headers = None if flow is None else flow.headers
        call = Call(http, user, target, verb, kind, served, audit_id, require, head.accept, headers)
        if audited is not None:
            audited.attach(call)
        reply = await self._counted(
            call, share, flow, self._answer_for(call), head.system_client, limit_s
        )
        if verb == "get":
            self._quick_reads.learn(call, head)
        if isinstance(reply, Reply) and served.warning:
            reply.warnings = [served.warning, *reply.warnings]
        return reply

    async def _counted(
        self,
        call: Call,
        share: str,
        flow: Flow | None,
        answer: Answer,
        system_client: str,
        limit_s: float | None,
    ) -> Reply | web.StreamResponse:
        """Answer a call within its time limit, and count it by the code of its answer."""
        series = self._requests.series(call)
        began_s = series.begin(is_long_running=call.is_stream)
        code = 0
        try:
            reply = await self._timed(call, share, flow, answer, limit_s)
            code = reply.status
            return reply
        except BaseException as error:
            code = code_of(error, call)
            raise
        finally:
            series.end(began_s, code, system_client, is_long_running=call.is_stream)

    async def _timed(
        self, call: Call, share: str, flow: Flow | None, answer: Answer, limit_s: float | None
    ) -> Reply | web.StreamResponse:
        """Answer a call, a stream without a time limit. Raises ServerTimeoutError for a write."""
        if flow is None:
            return await answer(call)
        if call.is_stream:
            return await self._seating.start(call, share, flow, answer)
        has_body = call.http.method in _BODY_METHODS
        deadline = self._deadlines.begin(limit_s)
        try:
            if has_body:
                return await self._with_body(call, share, flow, answer, deadline)
            return await self._seating.answer(call, share, flow, answer)
        except asyncio.CancelledError:
            if not deadline.has_expired():
                raise
            if has_body:
                raise write_timed_out() from None
            return timed_out()
        finally:
            self._deadlines.end(deadline)

    async def _with_body(
        self, call: Call, share: str, flow: Flow, answer: Answer, deadline: RequestDeadline
    ) -> Reply | web.StreamResponse:
        """Read the body, then answer in a seat: slow clients hold none."""
        call.body = await self._bodies.read(call.http, share)
        try:
            self._deadlines.begin_write(deadline)
            return await self._seating.answer(call, share, flow, answer)
        finally:
            self._bodies.release(share, len(call.body))

    def _user(self, http: web.BaseRequest, head: RequestHead) -> User:
        user = self._authenticator.identify(head.token, peer_certificate(http))
        if user.name != ANONYMOUS and not is_proven(http) and not prove(http, share_of(user)):
            raise TooManyRequestsError(
                "too many connections of this user are open, please try again later",
                {"retryAfterSeconds": 1},
            )
        return user

    def _impersonated(
        self, http: web.BaseRequest, user: User, audited: AuditedRequest | None
    ) -> User:
        acting = impersonated(user, http.headers, self._authorizer.is_allowed)
        if audited is not None and acting is not user:
            audited.impersonated(acting)
        return acting

    async def _received(
        self,
        audit: AuditEvents,
        http: web.BaseRequest,
        user: User | None,
        audit_id: str,
        routed: _Routed,
    ) -> AuditedRequest | None:
        """Record that a request was received. Raises InternalError if that is not possible."""
        target, _, action, _ = routed
        try:
            return await audit.received(http, user, target, action, audit_id)
        except TimeoutError as error:
            raise InternalError.of("failed to store audit event") from error

    async def _audit_refused(
        self, audit: AuditEvents, http: web.BaseRequest, audit_id: str
    ) -> None:
        """Record a request whose credentials were refused."""
        audited = await self._received(audit, http, None, audit_id, _routed(http))
        if audited is not None:
            audited.failed_authentication(_attempted(http))

    def _require(self, user: User, action: Action, verb: str) -> None:
        """Authorize another verb on the target of an authorized request."""
        if action.verb != verb:
            self._authorizer.check(user, replace(action, verb=verb))

    def _answer_for(self, call: Call) -> Answer:
        """Return the handler of the call. Raises NotFoundError, MethodNotAllowedError."""
        kind, target, verb = call.kind, call.target, call.verb
        if target.subresource:
            subresource = kind.subresources.get(target.subresource)
            if subresource is None:
                raise NotFoundError.no_such_resource()
            answer = self._subresources.find(call)
            # OPTIONS has no verb, and a proxy passes it on all the same.
            is_passed_on = target.subresource == "proxy" and call.http.method == "OPTIONS"
            if answer is None or not (verb in subresource.verbs or is_passed_on):
                raise MethodNotAllowedError
            return answer
        if verb not in kind.verbs or not fits_path(call):
            raise MethodNotAllowedError
        if not kind.is_stored:
            return self._unstored[kind.resource][verb]
        return self._verbs[verb]

    async def _page(self, http: web.BaseRequest) -> Reply:
        for page in self._pages:
            reply = page(http)
            if reply is not None:
                return reply if isinstance(reply, Reply) else await reply
        parts = [part for part in http.path.split("/") if part]
        if len(parts) >= 3 and parts[0] == "apis" and self._resource_map.has_group(parts[1]):
            raise NotFoundError.no_such_resource()
        return not_found_page()


def _attempted(http: web.BaseRequest) -> str:
    """Return which credentials were refused, as audit events have it."""
    scheme = http.headers.get("Authorization", "").partition(" ")[0].lower()
    attempted = [scheme] if scheme in ("basic", "bearer") else []
    if peer_certificate(http) is not None:
        attempted.append("x509")
    if not attempted:
        return "Authentication failed, no credentials provided"
    return f"Authentication failed, attempted: {', '.join(attempted)}"


def _is_pretty(http: web.BaseRequest, head: RequestHead) -> bool:
    """Return whether an answer is indented: as `pretty` says, else for people.

    Source: `isPrettyPrint`.
    """
    # Hot path: nearly no request has the parameter.
    if "pretty" not in http.query_string or not (text := http.query.get("pretty")):
        return head.is_of_people
    return text in _TRUE


def error_text(error: Exception) -> str:
    """Return the message of an error that nothing expects."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OverflowError):
        return "a number in it is too large"
    return "it holds text that is not UTF-8"


def fits_path(call: Call) -> bool:
    """Return whether the method is defined on this collection or object."""
    kind, target = call.kind, call.target
    if call.verb == "create":
        return not target.name and (bool(target.namespace) or not kind.is_namespaced)
    if call.verb in ("update", "patch") and not target.name:
        return False
    return not (target.name and kind.is_namespaced and not target.namespace)


def authorized_selector(text: str) -> FieldSelector:
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


def _routed(http: web.BaseRequest) -> _Routed:
    """Return a request's target, its verb, the action to authorize, its selectors."""
    if not http.query_string:
        route = route_of(http.method, http.path)
        return route.target, route.verb, route.action, _EVERYTHING
    target = parse_path(http.path)
    verb = verb_of(http.method, target, http.query)
    selector = authorized_selector(http.query.get("fieldSelector", ""))
    label_selector = _label_selector(http.query.get("labelSelector", ""))
    return target, verb, authorized_action(verb, target, selector), (selector, label_selector)


def authorized_action(verb: str, target: Target, selector: FieldSelector) -> Action:
    """Return the action to authorize."""
    name = ""
    if verb in ("list", "watch"):
        # A list with `metadata.name=` in its field selector is authorized by that name.
        name = selector.required_value("metadata.name") or ""
    return action_of(verb, target, name)


def _checked(resource: tuple[Kind, Served] | None, target: Target) -> tuple[Kind, Served]:
    """Return the resource that a path names. Raises NotFoundError."""
    if resource is None:
        raise NotFoundError.no_such_resource()
    kind, _ = resource
    if target.namespace and not kind.is_namespaced and kind.plural != "namespaces":
        raise NotFoundError.no_such_resource()
    return resource
