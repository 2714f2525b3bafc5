"""Admission of requests that write no object of the resource: evictions, bindings, connections.

Webhooks and policies see the body or the options of the request. Source: apiserver
`endpoints/handlers/create.go`, `rest.go` (`ConnectResource`).
"""

from __future__ import annotations

from moorage.api.errors import BadRequestError
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.objects import Admission
from moorage.apiserver.registry.request import Attributes, Form, Request


async def admit_body(admission: Admission, call: Call, request: Request, body: Obj) -> Obj:
    """Return the body of a creation that stores no such object, after admission.

    Raises StatusError.
    """
    return await _admitted(admission, call, request, "CREATE", body)


async def admit_connection(admission: Admission, call: Call, options: Obj) -> Obj:
    """Return the options of a connection after admission. Raises StatusError."""
    if call.query.get("dryRun"):
        raise BadRequestError("dryRun is not supported")
    request = Request(user=call.user, user_agent=call.user_agent, annotations=call.annotations)
    return await _admitted(admission, call, request, "CONNECT", options)


async def _admitted(
    admission: Admission, call: Call, request: Request, operation: str, obj: Obj
) -> Obj:
    subresource = call.target.subresource
    attributes = Attributes(
        request=request,
        operation=operation,
        kind=call.kind,
        served=call.served,
        namespace=call.namespace,
        name=call.target.name or obj.get("metadata", {}).get("name", ""),
        obj=obj,
        subresource=subresource,
        form=Form.of(call.kind.subresources[subresource]) if subresource else None,
    )
    try:
        await admission.mutate(attributes)
        await admission.validate(attributes)
    finally:
        attributes.end()
    return obj
