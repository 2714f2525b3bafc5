"""Authorization: `authorizer.group('apps').resource('deployments').check('create').allowed()`.

The worker process has no authorizer: a check is a question to the process that sent the request.
What a check was built from so far is the text of its opaque value, as JSON. Source: API docs
"Kubernetes authorizer library"; apiserver `cel/library/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from moorage.api import names
from moorage.apiserver.cel.library.declaring import CelType, Signature, Type, method
from moorage.apiserver.cel.library.opaque import (
    AUTHORIZER,
    DECISION,
    GROUP_CHECK,
    RESOURCE_CHECK,
    OpaqueType,
)
from moorage.apiserver.cel.messages import Check, Verdict

Ask = Callable[[Check], Verdict]

_ask: ContextVar[Ask] = ContextVar("ask")


VARIABLES: dict[str, CelType] = {
    "authorizer": AUTHORIZER.cel,
    "authorizer.requestResource": RESOURCE_CHECK.cel,
}


@contextmanager
def asking(ask: Ask) -> Iterator[None]:
    """Decide the checks of expressions by a function while the context is open."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def values_for(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `VARIABLES` for an AdmissionRequest."""
    resource = request.get("resource") or {}
    check = Check(
        verb="",
        group=resource.get("group", ""),
        resource=resource.get("resource", ""),
        subresource=request.get("subResource", ""),
        namespace=request.get("namespace", ""),
        name=request.get("name", ""),
    )
    return {
        "authorizer": _value(AUTHORIZER, Check(verb="")),
        "authorizer.requestResource": _value(RESOURCE_CHECK, check),
    }


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    text, resource = Type.STRING, RESOURCE_CHECK.cel
    return [
        # Overloads must differ in kinds for the library, and both checks are messages: one type.
        method("path", [AUTHORIZER.cel, text], resource, _path),
        method("group", [AUTHORIZER.cel, text], GROUP_CHECK.cel, _with(GROUP_CHECK, "group")),
        method("serviceAccount", [AUTHORIZER.cel, text, text], AUTHORIZER.cel, _account),
        method("resource", [GROUP_CHECK.cel, text], resource, _resource),
        *(
            method(name, [resource, text], resource, _with(RESOURCE_CHECK, field))
            for name, field in (
                ("subresource", "subresource"),
                ("namespace", "namespace"),
                ("name", "name"),
                ("fieldSelector", "field_selector"),
                ("labelSelector", "label_selector"),
            )
        ),
        method("check", [resource, text], DECISION.cel, _decide),
        method("allowed", [DECISION.cel], Type.BOOL, lambda value: _verdict(value).is_allowed),
        method("reason", [DECISION.cel], text, lambda value: _verdict(value).reason),
        # The authorizer of this server decides without errors.
        method("errored", [DECISION.cel], Type.BOOL, lambda _: False),
        method("error", [DECISION.cel], text, lambda _: ""),
    ]


def _value(kind: OpaqueType, content: Check | Verdict) -> Any:
    return kind(msgspec.json.encode(content).decode())


def _check(value: Any) -> Check:
    return msgspec.json.decode(value.text, type=Check)


def _verdict(value: Any) -> Verdict:
    return msgspec.json.decode(value.text, type=Verdict)


def _with(kind: OpaqueType, field: str) -> Callable[[Any, str], Any]:
    def call(value: Any, text: str) -> Any:
        check = _check(value)
        if check.path:
            raise ValueError("no such overload")
        return _value(kind, msgspec.structs.replace(check, **{field: text}))

    return call


def _path(authorizer: Any, path: str) -> Any:
    if not path.strip():
        raise ValueError("path must not be empty")
    return _value(RESOURCE_CHECK, msgspec.structs.replace(_check(authorizer), path=path))


def _resource(group: Any, resource: str) -> Any:
    if not resource.strip():
        raise ValueError("resource must not be empty")
    return _value(RESOURCE_CHECK, msgspec.structs.replace(_check(group), resource=resource))


def _account(authorizer: Any, namespace: str, name: str) -> Any:
    if names.dns_subdomain_errors(name):
        raise ValueError("Invalid service account name")
    if names.dns_label_errors(namespace):
        raise ValueError("Invalid service account namespace")
    changed = msgspec.structs.replace(_check(authorizer), account=(namespace, name))
    return _value(AUTHORIZER, changed)


def _decide(value: Any, verb: str) -> Any:
    return _value(DECISION, _ask.get()(msgspec.structs.replace(_check(value), verb=verb)))
