"""Reviews: an AdmissionReview is answered by the plugins that our own API server runs.

A mutation is answered with a patch of the fields that changed. The API server adds overhead and
scheduling of a class that it finds in the patched pod: it runs its own plugins again after a
webhook that changed the object. Source: API docs "Dynamic Admission Control", admission.k8s.io/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from moorage.api.errors import BadRequestError, ForbiddenError, StatusError, TooLargeError
from moorage.api.meta import Object
from moorage.api.pods import PodSpec
from moorage.api.runtime_group import GROUP, VERSION
from moorage.apiserver.admission.chain import CREATE, Plugin, Scope
from moorage.apiserver.admission.runtime_policies import (
    Facts,
    PlacingByHandlerAdmission,
    RuntimePolicyAdmission,
    RuntimePolicyWrites,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.request import Attributes, Request, User
from moorage.runtimeclass.workloads import POD_PATHS, TEMPLATES, template_of

# Patches: what changed between two objects, as a JSON Patch. Source: RFC 6902, RFC 6901.

Operation = dict[str, Any]


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that make `after` of `before`. Lists are replaced as wholes."""
    return [*_operations(before, after, "")]


def _operations(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str
) -> Iterator[Operation]:
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": _below(path, key)}
    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": _below(path, key), "value": value}
            continue
        old = before[key]
        if old is value or (type(old) is type(value) and old == value):
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            yield from _operations(old, value, _below(path, key))
        else:
            yield {"op": "replace", "path": _below(path, key), "value": value}


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"
REVIEW = "AdmissionReview"
_PODS = "pods"
_MOST_VALUES = 250_000
"""Limit on the values of a review: an object of a few bytes takes a hundred in memory."""


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of an AdmissionRequest."""

    uid: str
    resource: _Resource
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _UserInfo = _UserInfo()
    object: Any = None
    old_object: Any = None
    dry_run: bool = False


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request | None = None


_decoder = msgspec.json.Decoder(_Review)


class ReviewHead(msgspec.Struct, frozen=True):
    """What a review is answered by before it is read whole."""

    uid: str
    namespace: str = ""

    def refused(self, error: StatusError) -> bytes:
        """Return the answer that refuses the write. A webhook that fails may be ignored."""
        return _answer_of({"uid": self.uid, **_refusal(error)})


class _HeadOnly(msgspec.Struct, frozen=True):
    request: ReviewHead | None = None


_head_decoder = msgspec.json.Decoder(_HeadOnly)


def head_of(body: bytes) -> ReviewHead:
    """Return the head of a review. Raises BadRequestError."""
    head = _parsed(_head_decoder, body).request
    if head is None:
        raise _no_request()
    return head


def check_size(body: bytes) -> None:
    """Raise TooLargeError for a review of too many values; commas in texts count too."""
    if len(body) > _MOST_VALUES and sum(map(body.count, (b",", b"{", b"["))) > _MOST_VALUES:
        raise TooLargeError(f"the object has more than {_MOST_VALUES} values")


def _answer_of(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": REVIEW, "response": response})


def _refusal(error: StatusError) -> dict[str, Any]:
    status = error.to_object()
    kept = {key: status[key] for key in ("code", "reason", "message", "details") if key in status}
    return {"allowed": False, "status": kept}


def _kinds() -> dict[tuple[str, str], Kind]:
    """Return the kinds that the plugins look at, by group and plural."""
    kinds = [_kind("", "v1", _PODS, "Pod")]
    for resource in TEMPLATES:
        plural, _, group = resource.partition(".")
        kinds.append(_kind(group, "v1", plural, _KIND_NAMES[plural]))
    kinds.append(_kind(GROUP, VERSION, "runtimepolicies", "RuntimePolicy"))
    kinds.append(_kind(GROUP, VERSION, "clusterruntimepolicies", "ClusterRuntimePolicy"))
    kinds.append(_kind(GROUP, VERSION, "runtimeclassquotas", "RuntimeClassQuota"))
    return {(kind.group, kind.plural): kind for kind in kinds}


_KIND_NAMES = {f"{name.lower()}s": name for name in POD_PATHS}
"""Plural → kind; each of these plurals has an `s` at its end."""


def _kind(group: str, version: str, plural: str, name: str) -> Kind:
    served = Served(group=group, version=version, type="")
    return Kind(name=name, plural=plural, served=(served,))


class _ClassQuotaWrites:
    """Refuses new RuntimeClassQuotas: several webhooks cannot count the same pods together."""

    name = "RuntimeClassQuotaWrites"
    scope = Scope.of([f"runtimeclassquotas.{GROUP}"], [CREATE])
    mutate = None

    def validate(self, attributes: Attributes) -> None:
        """Raise ForbiddenError: a quota that counts and refuses nothing looks like one in force."""
        raise ForbiddenError.of(
            "runtimeclassquotas",
            attributes.name,
            "only the API server of moor up enforces RuntimeClassQuotas, and this one does not: "
            "use a ResourceQuota in a namespace for the pods of one class, which allowedClasses of "
            "a RuntimePolicy keeps others out of",
            group=GROUP,
        )


class Reviewer:
    """Answers AdmissionReviews. Hot path: under 0.5 ms a pod."""

    def __init__(self, facts: Facts, *, places_by_handler: bool = False) -> None:
        """`places_by_handler`: pods get node affinity and gates, as our scheduler does not need."""
        self._plugins: tuple[Plugin, ...] = (
            RuntimePolicyAdmission(facts, recognizes_choice=True),
            *((PlacingByHandlerAdmission(facts),) if places_by_handler else ()),
            RuntimePolicyWrites(facts.index),
            _ClassQuotaWrites(),
        )
        self._kinds = _kinds()

    def mutate(self, body: bytes) -> bytes:
        """Return the answer to a review by a mutating webhook. Raises BadRequestError."""
        return self._answered(body, is_mutating=True)

    def validate(self, body: bytes) -> bytes:
        """Return the answer to a review by a validating webhook. Raises BadRequestError."""
        return self._answered(body, is_mutating=False)

    def _answered(self, body: bytes, *, is_mutating: bool) -> bytes:
        asked = _decoded(body)
        attributes = self._attributes(asked)
        answer: dict[str, Any] = {"uid": asked.uid, "allowed": True}
        if attributes is not None:
            try:
                if is_mutating:
                    answer |= self._mutated(attributes)
                else:
                    self._validated(attributes)
            except StatusError as error:
                answer |= _refusal(error)
            except (msgspec.ValidationError, ValueError) as error:
                # An amount that is none: the API server's validation would refuse it next.
                answer |= _refusal(BadRequestError(f"request.object: {error}"))
            if attributes.request.warnings:
                answer["warnings"] = attributes.request.warnings
        return _answer_of(answer)

    def _attributes(self, asked: _Request) -> Attributes | None:
        """Return the write as the plugins see it, None for one that they do not look at."""
        kind = self._kinds.get((asked.resource.group, asked.resource.resource))
        if kind is None or asked.operation not in ("CREATE", "UPDATE"):
            return None
        obj = asked.object
        if not isinstance(obj, dict) or not isinstance(asked.old_object, dict | None):
            raise BadRequestError("request.object: must be an object")
        obj = _in_shape(kind, obj)
        user = asked.user_info
        return Attributes(
            request=Request(
                user=User(user.username, user.uid, user.groups, user.extra),
                is_dry_run=asked.dry_run,
            ),
            operation=asked.operation,
            kind=kind,
            served=kind.storage,
            namespace=asked.namespace,
            name=asked.name,
            obj=obj,
            old=asked.old_object,
            subresource=asked.sub_resource,
        )

    def _mutated(self, attributes: Attributes) -> dict[str, Any]:
        before = attributes.obj
        assert before is not None
        attributes.obj = _with_parts(before)
        for plugin in self._covering(attributes):
            if plugin.mutate is not None:
                plugin.mutate(attributes)
        patch = patch_of(before, attributes.obj)
        if not patch:
            return {}
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        return {"patchType": "JSONPatch", "patch": encoded}

    def _validated(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        attributes.obj = _with_parts(attributes.obj)
        for plugin in self._covering(attributes):
            if plugin.validate is not None:
                plugin.validate(attributes)

    def _covering(self, attributes: Attributes) -> list[Plugin]:
        resource, subresource = attributes.kind.resource, attributes.subresource
        return [
            plugin
            for plugin in self._plugins
            if plugin.scope.covers(resource, subresource, attributes.operation)
        ]


def _decoded(body: bytes) -> _Request:
    review = _parsed(_decoder, body)
    if (review.api_version, review.kind) != (API_VERSION, REVIEW) or review.request is None:
        raise _no_request()
    return review.request


def _parsed(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is no {REVIEW}: {error}") from error


def _no_request() -> BadRequestError:
    return BadRequestError(f"the body is no {REVIEW} of {API_VERSION} with a request")


class _Metadata(Object, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Shape(Object, frozen=True):
    """What is read of a pod, or of a template."""

    metadata: _Metadata | None = None
    spec: PodSpec | None = None


def _in_shape(kind: Kind, obj: Obj) -> Obj:
    """Return a pod or template that has the types which the plugins rely on.

    API servers written in Go send `null` for lists that are empty and not omitted, such as
    `projected.sources`; without them the object is the same, and a patch of it fits both. Raises
    BadRequestError for what no API server would send.
    """
    try:
        _check_shape(kind, obj)
    except msgspec.ValidationError:
        obj = _without_nulls(obj)
        try:
            _check_shape(kind, obj)
        except msgspec.ValidationError as error:
            raise BadRequestError(f"request.object: {error}") from error
    return obj


def _check_shape(kind: Kind, obj: Obj) -> None:
    pod = obj if kind.plural == _PODS else None
    if kind.resource in TEMPLATES:
        pod = template_of(kind.resource, obj)
    if pod is not None:
        msgspec.convert(pod, _Shape)


def _without_nulls(value: Any) -> Any:
    """Return JSON without fields that are null, at any depth; those of lists stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _with_parts(obj: Mapping[str, Any]) -> Obj:
    """Return a copy whose metadata and specification the plugins may change.

    They change maps below these two, by replacing or copying them.
    """
    metadata = dict(obj.get("metadata") or {})
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = dict(annotations)
    return {**obj, "metadata": metadata, "spec": dict(obj.get("spec") or {})}
