"""Subresource `serviceaccounts/token`: issues tokens of an account.

Source: authentication.k8s.io/v1 `TokenRequest`, KEP-1205.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import (
    BadRequestError,
    ConflictError,
    FieldError,
    InvalidError,
    NotFoundError,
    StatusError,
)
from moorage.apiserver.authentication.service_accounts import BoundObject, TokenSigner
from moorage.apiserver.endpoints.admitting import admit_body
from moorage.apiserver.endpoints.bodies import BodyDecoder
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.options import write_request
from moorage.apiserver.endpoints.replies import Reply, document_reply, success
from moorage.apiserver.endpoints.subresources.eviction import set_pod_condition
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.unstored import validate_binding
from moorage.apiserver.registry.objects import Admission, Objects

# Binding: a pod is assigned to a node. Source: core/v1 `Binding`.

_BINDING = "io.k8s.api.core.v1.Binding"


class BindingSubresource(msgspec.Struct, frozen=True):
    """Serves `pods/binding`, and `bindings`, where the body alone names the pod."""

    decoder: BodyDecoder
    objects: Objects
    admission: Admission
    clock: Clock

    async def create(self, call: Call) -> Reply:
        """Bind the pod to the node that the Binding names; a pod is bound at most once."""
        request = write_request(
            call.user, call.user_agent, call.query, "CreateOptions", annotations=call.annotations
        )
        binding = await self.decoder.decode_as(call, request, "Binding", "v1", _BINDING)
        binding = await admit_body(self.admission, call, request, binding)
        name = call.target.name or binding["metadata"].get("name", "")
        errors = validate_binding(binding)
        if errors:
            raise InvalidError.of("Binding", name, errors)
        if binding["metadata"].get("name", name) != name:
            raise BadRequestError("the name of the binding does not match the name on the URL")
        if not name:
            raise BadRequestError("Name parameter required.")
        request.is_own = True
        await self.objects.update(
            request,
            POD,
            POD.storage,
            call.namespace,
            name,
            lambda pod: self._bound(pod, binding),
            subresource="binding",
        )
        return success(201, call.document_form(), request.warnings)

    def _bound(self, pod: Obj | None, binding: Obj) -> Obj:
        assert pod is not None
        meta, wanted = pod["metadata"], binding["metadata"]
        name, node = meta["name"], binding["target"]["name"]
        if wanted.get("uid") and wanted["uid"] != meta["uid"]:
            raise _refused(name, f"Precondition failed: UID in precondition: {wanted['uid']}, "
                           f"UID in object meta: {meta['uid']}")  # fmt: skip
        if "deletionTimestamp" in meta:
            raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise _refused(
                name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            )
        if pod["spec"].get("schedulingGates"):
            raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = node
        meta.pop("resourceVersion", None)
        for field in ("annotations", "labels"):
            if wanted.get(field):
                meta[field] = {**meta.get(field, {}), **wanted[field]}
        now = format_time(self.clock.now())
        set_pod_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
        return pod


def _refused(name: str, why: str) -> StatusError:
    return ConflictError(
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        {"name": name, "kind": "pods/binding"},
    )


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
        check_place(wanted.get("metadata", {}), name, namespace)
        account = self.objects.get(call.kind, namespace, name).obj
        check_account_uid(wanted.get("metadata", {}), account)
        wanted = await admit_body(self.admission, call, request, wanted)
        spec = completed_spec(wanted, self.signer)
        bound = self.bound_objects(spec.get("boundObjectRef"), name, namespace)
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

    def bound_objects(
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


def check_place(meta: Obj, name: str, namespace: str) -> None:
    """Raise InvalidError for a body that names another account than the URL."""
    for field, own in (("name", name), ("namespace", namespace)):
        if meta.get(field, own) != own:
            error = FieldError.invalid(
                f"metadata.{field}",
                meta[field],
                f"must match the service account {field} if specified",
            )
            raise InvalidError.of("TokenRequest", name, [error], group=_GROUP)


def check_account_uid(meta: Obj, account: Obj) -> None:
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


def completed_spec(wanted: Obj, signer: TokenSigner) -> Obj:
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
