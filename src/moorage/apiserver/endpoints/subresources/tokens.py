"""Subresource `serviceaccounts/token`: issues tokens of an account.

Source: authentication.k8s.io/v1 `TokenRequest`, KEP-1205.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from moorage.api.clock import format_time
from moorage.api.errors import (
    BadRequestError,
    ConflictError,
    FieldError,
    InvalidError,
    NotFoundError,
)
from moorage.apiserver.authentication.service_accounts import BoundObject, TokenSigner
from moorage.apiserver.endpoints.admitting import admit_body
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.decoding import BodyDecoder
from moorage.apiserver.endpoints.options import write_request
from moorage.apiserver.endpoints.replies import Reply, document_reply
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.objects import Admission, Objects

_GROUP = "authentication.k8s.io"
_TYPE = "io.k8s.api.authentication.v1.TokenRequest"
_DEFAULT_SECONDS = 3600
_LEAST_SECONDS = 600
_MOST_SECONDS = 2**32


class TokenSubresource(msgspec.Struct, frozen=True):
    """Issues tokens. `bindable` has the kinds that tokens may be bound to, by name."""

    decoder: BodyDecoder
    objects: Objects
    admission: Admission
    signer: TokenSigner
    bindable: dict[str, Kind]

    async def create(self, call: Call) -> Reply:
        """Answer POST of a TokenRequest with a signed token. Raises InvalidError for its bounds."""
        request = write_request(
            call.user, call.user_agent, call.query, "CreateOptions", annotations=call.annotations
        )
        wanted = await self.decoder.decode_as(
            call, request, "TokenRequest", "authentication.k8s.io/v1", _TYPE
        )
        name, namespace = call.target.name, call.namespace
        _check_place(wanted.get("metadata", {}), name, namespace)
        account = self.objects.get(call.kind, namespace, name).obj
        _check_account_uid(wanted.get("metadata", {}), account)
        wanted = await admit_body(self.admission, call, request, wanted)
        spec = _completed(wanted, self.signer)
        bound = self._bound_objects(spec.get("boundObjectRef"), name, namespace)
        meta = account["metadata"]
        issued = self.signer.issue(
            namespace,
            name,
            meta["uid"],
            audiences=spec["audiences"],
            seconds=spec["expirationSeconds"],
            bound=bound,
        )
        answer = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": meta["creationTimestamp"],
            },
            "spec": spec,
            "status": {
                "token": issued.token,
                "expirationTimestamp": format_time(datetime.fromtimestamp(issued.expires, UTC)),
            },
        }
        return document_reply(
            answer, call.document_form(), 201, type_name=_TYPE, warnings=request.warnings
        )

    def _bound_objects(
        self, reference: Obj | None, account: str, namespace: str
    ) -> list[BoundObject]:
        if not reference:
            return []
        kind = self.bindable.get(reference.get("kind", ""))
        if kind is None or reference.get("apiVersion", "v1") != "v1":
            raise BadRequestError(f"cannot bind token to object of type {_shown_type(reference)}")
        name = reference.get("name", "")
        item = self.objects.find(kind, namespace if kind.is_namespaced else "", name)
        if item is None:
            raise NotFoundError.of(kind.plural, name)
        obj = item.obj
        if kind.name == "Pod" and obj["spec"].get("serviceAccountName") != account:
            raise BadRequestError(
                f'cannot bind token for serviceaccount "{account}" to pod running with different '
                "serviceaccount name."
            )
        uid = obj["metadata"]["uid"]
        if reference.get("uid") and reference["uid"] != uid:
            raise ConflictError.of(
                kind.name,
                name,
                f"the UID in the bound object reference ({reference['uid']}) does not match the "
                f"UID in record. The object might have been deleted and then recreated",
            )
        bound = [BoundObject(kind.singular, name, uid)]
        node_name = obj.get("spec", {}).get("nodeName") if kind.name == "Pod" else None
        if node_name:
            node = self.objects.find(self.bindable["Node"], "", node_name)
            node_uid = node.obj["metadata"]["uid"] if node is not None else ""
            bound.append(BoundObject("node", node_name, node_uid))
        return bound


def _shown_type(reference: Obj) -> str:
    """Return the type of a reference as Go prints a GroupVersionKind."""
    return f"{reference.get('apiVersion', '')}, Kind={reference.get('kind', '')}"


def _check_place(meta: Obj, name: str, namespace: str) -> None:
    """Raise InvalidError for a body that names another account than the URL."""
    for field, own in (("name", name), ("namespace", namespace)):
        if meta.get(field, own) != own:
            error = FieldError.invalid(
                f"metadata.{field}",
                meta[field],
                f"must match the service account {field} if specified",
            )
            raise InvalidError.of("TokenRequest", name, [error], group=_GROUP)


def _check_account_uid(meta: Obj, account: Obj) -> None:
    """Raise ConflictError for a body with the UID of an earlier account of that name."""
    uid = account["metadata"]["uid"]
    if meta.get("uid", uid) != uid:
        raise ConflictError.of(
            "TokenRequest",
            account["metadata"]["name"],
            f"the UID in the token request ({meta['uid']}) does not match the UID of the service "
            f"account ({uid})",
            group=_GROUP,
        )


def _completed(wanted: Obj, signer: TokenSigner) -> Obj:
    """Return the spec of the request with its defaults. Raises InvalidError."""
    spec = dict(wanted.get("spec", {}))
    spec["audiences"] = spec.get("audiences") or list(signer.audiences)
    spec.setdefault("expirationSeconds", _DEFAULT_SECONDS)
    errors: list[FieldError] = []
    seconds = spec["expirationSeconds"]
    if seconds < _LEAST_SECONDS:
        errors.append(
            FieldError.invalid(
                "spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"
            )
        )
    if seconds > _MOST_SECONDS:
        errors.append(
            FieldError.invalid(
                "spec.expirationSeconds",
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            )
        )
    if errors:
        raise InvalidError.of("TokenRequest", "", errors, group=_GROUP)
    return spec
