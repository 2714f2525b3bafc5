"""Binding: a pod is assigned to a node. Source: core/v1 `Binding`."""

from __future__ import annotations

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import BadRequestError, ConflictError, InvalidError, StatusError
from moorage.apiserver.endpoints.admitting import admit_body
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.decoding import BodyDecoder
from moorage.apiserver.endpoints.options import write_request
from moorage.apiserver.endpoints.replies import Reply, success
from moorage.apiserver.endpoints.subresources.pod_conditions import set_pod_condition
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.unstored import validate_binding
from moorage.apiserver.registry.objects import Admission, Objects

_TYPE = "io.k8s.api.core.v1.Binding"


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
        binding = await self.decoder.decode_as(call, request, "Binding", "v1", _TYPE)
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
