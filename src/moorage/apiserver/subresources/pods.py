"""Pod subresources: binding, eviction and ephemeral containers.

Source: core/v1 `Binding`, policy/v1 `Eviction`, KEP-277 (ephemeral containers).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import BadRequestError, ConflictError, InvalidError, StatusError
from moorage.apiserver.call import Call
from moorage.apiserver.decoding import BodyDecoder
from moorage.apiserver.negotiation import PLAIN
from moorage.apiserver.options import write_request
from moorage.apiserver.replies import Reply, formed
from moorage.registry.deletion import DeleteOptions
from moorage.registry.kind import Obj
from moorage.registry.objects import Objects
from moorage.registry.request import Request
from moorage.registry.validation.subresources import validate_binding

_BINDING_TYPE = "io.k8s.api.core.v1.Binding"
_EVICTION_TYPE = "io.k8s.api.policy.v1.Eviction"


@dataclass(frozen=True, slots=True)
class PodSubresources:
    """Serves `pods/binding` and `pods/eviction`."""

    decoder: BodyDecoder
    objects: Objects
    clock: Clock

    async def bind(self, call: Call) -> Reply:
        """Bind the pod to the node that the Binding names; a pod is bound at most once."""
        request = write_request(call.user, call.user_agent, call.query, "CreateOptions")
        binding = await self.decoder.decode_as(call, request, "Binding", "v1", _BINDING_TYPE)
        errors = validate_binding(binding)
        if errors:
            raise InvalidError.of("Binding", call.target.name, errors)
        name = call.target.name or binding["metadata"].get("name", "")
        if binding["metadata"].get("name", name) != name:
            raise BadRequestError("the name of the binding does not match the name on the URL")
        await self.objects.update(
            request,
            call.kind,
            call.served,
            call.namespace,
            name,
            lambda pod: self._bound(pod, binding),
            subresource="binding",
        )
        return _success(201)

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
        _set_condition(pod, {"type": "PodScheduled", "status": "True"}, self._now())
        return pod

    async def evict(self, call: Call) -> Reply:
        """Delete a pod gracefully for an Eviction and record the reason in its status."""
        request = write_request(call.user, call.user_agent, call.query, "CreateOptions")
        eviction = await self.decoder.decode_as(
            call, request, "Eviction", "policy/v1", _EVICTION_TYPE
        )
        name = call.target.name
        if eviction["metadata"].get("name", name) != name:
            raise BadRequestError("name in URL does not match name in Eviction object")
        options = DeleteOptions.of(eviction.get("deleteOptions") or {})
        pod = self.objects.get(call.kind, call.namespace, name).obj
        if _wants_condition(pod):
            await self._note_eviction(call, request, name)
        await self.objects.delete(request, call.kind, call.served, call.namespace, name, options)
        return _success(201)

    async def _note_eviction(self, call: Call, request: Request, name: str) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }

        def make_new(pod: Obj | None) -> Obj:
            assert pod is not None
            pod["metadata"].pop("resourceVersion", None)
            _set_condition(pod, condition, self._now())
            return pod

        await self.objects.update(
            request, call.kind, call.served, call.namespace, name, make_new, subresource="status"
        )

    def _now(self) -> str:
        return format_time(self.clock.now())


def _wants_condition(pod: Obj) -> bool:
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not is_over and "deletionTimestamp" not in pod["metadata"]


def _set_condition(pod: Obj, condition: Obj, now: str) -> None:
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for index, present in enumerate(conditions):
        if present["type"] == condition["type"]:
            is_same = present.get("status") == condition["status"]
            since = present.get("lastTransitionTime", now) if is_same else now
            conditions[index] = {**condition, "lastTransitionTime": since}
            return
    conditions.append({**condition, "lastTransitionTime": now})


def _refused(name: str, why: str) -> StatusError:
    return ConflictError(
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        {"name": name, "kind": "pods/binding"},
    )


def _success(code: int) -> Reply:
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code,
    }  # fmt: skip
    return formed(msgspec.json.encode(status) + b"\n", PLAIN, code)
