"""The verbs on resources: from a call to the registry and back to a reply.

Source: API docs "Kubernetes API Concepts". Which object goes out on DELETE, which code on PUT, and
the like are the kind's strategy.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from moorage.api.errors import BadRequestError
from moorage.apiserver.call import Call
from moorage.apiserver.negotiation import PARTIAL, PARTIAL_LIST, TABLE
from moorage.apiserver.options import delete_options, int_option, write_request
from moorage.apiserver.patching import Patcher
from moorage.apiserver.replies import Reply, formed
from moorage.apiserver.shapes import list_bytes, object_bytes
from moorage.registry.codec import Codec, Decoded, strict_error
from moorage.registry.kind import Obj
from moorage.registry.listing import Lister, ListOptions, parse_revision, wait_fresh
from moorage.registry.objects import Objects
from moorage.registry.request import Request
from moorage.registry.selection import select
from moorage.registry.stored import Stored

_DELETE_OPTIONS_TYPE = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


@dataclass(frozen=True, slots=True)
class Resources:
    """Answers calls for objects and collections."""

    codec: Codec
    objects: Objects
    lister: Lister
    patcher: Patcher

    async def get(self, call: Call) -> Reply:
        form = call.form(TABLE, PARTIAL)
        wanted = parse_revision(call.query.get("resourceVersion", ""))
        if wanted > self.lister.cache.revision:
            await wait_fresh(self.lister.cache, wanted)
        item = self.objects.get(call.kind, call.namespace, call.target.name)
        return formed(
            object_bytes(self.codec, call.kind, call.served, item, form, call.query), form
        )

    async def list(self, call: Call) -> Reply:
        form = call.form(TABLE, PARTIAL_LIST)
        query = call.query
        options = ListOptions(
            selection=select(
                call.kind,
                call.served,
                query.get("labelSelector", ""),
                query.get("fieldSelector", ""),
            ),
            limit=max(int_option(query, "limit"), 0),
            continue_=query.get("continue", ""),
            resource_version=query.get("resourceVersion", ""),
            match=query.get("resourceVersionMatch", ""),
        )
        listed = await self.lister.page(call.kind, call.namespace, options)
        body = list_bytes(self.codec, call.kind, call.served, listed, form, query)
        return formed(body, form, is_compressible=True)

    async def create(self, call: Call) -> Reply:
        call.form(TABLE, PARTIAL)
        request = write_request(call.user, call.user_agent, call.query, "CreateOptions")
        obj = await self._decoded_body(call, request)
        item = await self.objects.create(request, call.kind, call.served, call.namespace, obj)
        return self._written(call, request, item, 201)

    async def update(self, call: Call, subresource: str = "") -> Reply:
        call.form(TABLE, PARTIAL)
        request = write_request(call.user, call.user_agent, call.query, "UpdateOptions")
        obj = await self._decoded_body(call, request)
        _check_name(obj, call.target.name)
        body = msgspec.json.encode(obj)

        def make_new(_: Obj | None) -> Obj:
            # A lost race makes the update anew, from what the client sent.
            fresh: Obj = msgspec.json.decode(body)
            return fresh

        updated = await self.objects.update(
            request,
            *call.place,
            make_new,
            subresource=subresource,
            may_create=call.kind.strategy.may_create_on_update and not subresource,
        )
        return self._written(call, request, updated.item, 201 if updated.is_created else 200)

    async def patch(self, call: Call, subresource: str = "") -> Reply:
        call.form(TABLE, PARTIAL)
        request, updated = await self.patcher.patch(call, subresource)
        return self._written(call, request, updated.item, 201 if updated.is_created else 200)

    async def delete(self, call: Call) -> Reply:
        form = call.form(TABLE, PARTIAL)
        options, is_dry_run = delete_options(call.query, await self._options_body(call))
        request = Request(user=call.user, user_agent=call.user_agent, is_dry_run=is_dry_run)
        deleted = await self.objects.delete(request, *call.place, options)
        if deleted.is_gone and not call.kind.strategy.returns_deleted:
            return formed(_success(call, deleted.item), form)
        return self._written(call, request, deleted.item, 200)

    async def delete_collection(self, call: Call) -> Reply:
        form = call.form(TABLE, PARTIAL_LIST)
        options, is_dry_run = delete_options(call.query, await self._options_body(call))
        request = Request(user=call.user, user_agent=call.user_agent, is_dry_run=is_dry_run)
        selection = select(
            call.kind,
            call.served,
            call.query.get("labelSelector", ""),
            call.query.get("fieldSelector", ""),
        )
        found = await self.objects.delete_collection(
            request, call.kind, call.served, call.namespace, selection, options
        )
        listed = self.lister.as_listed(found)
        body = list_bytes(self.codec, call.kind, call.served, listed, form, call.query)
        return formed(body, form, is_compressible=True)

    async def _decoded_body(self, call: Call, request: Request) -> Obj:
        """The body's object; what strict validation finds is refused, warned of, or ignored."""
        media = call.media()
        decoded = self.codec.decode(call.kind, call.served, await call.body(), media)
        settle_complaints(decoded, request, call)
        return decoded.obj

    async def _options_body(self, call: Call) -> Obj:
        body = await call.body()
        if not body.strip():
            return {}
        media = call.media()
        api_version = call.served.api_version
        for accepted in ("v1", api_version, "meta.k8s.io/v1"):
            try:
                return self.codec.decode_as(
                    "DeleteOptions", accepted, _DELETE_OPTIONS_TYPE, body, media
                ).obj
            except BadRequestError:
                if accepted == "meta.k8s.io/v1":
                    raise
        raise AssertionError("the loop returns or raises")

    def _written(self, call: Call, request: Request, item: Stored, status: int) -> Reply:
        form = call.form(TABLE, PARTIAL)
        reply = formed(
            object_bytes(self.codec, call.kind, call.served, item, form, call.query), form, status
        )
        reply.warnings = request.warnings
        return reply


def settle_complaints(decoded: Decoded, request: Request, call: Call) -> None:
    """Apply `fieldValidation` to what decoding complained of. Raises BadRequestError."""
    if not decoded.complaints or request.field_validation == "Ignore":
        return
    if request.field_validation == "Strict":
        raise strict_error(call.kind.name, call.served.api_version, decoded.complaints)
    for complaint in decoded.complaints:
        request.warn(complaint)


def _check_name(obj: Obj, name: str) -> None:
    given = obj["metadata"].get("name", "")
    if not given:
        raise BadRequestError(
            f"the name of the object ({name} based on URL) was undeterminable: name must be "
            "provided"
        )
    if given != name:
        raise BadRequestError(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _success(call: Call, item: Stored) -> bytes:
    details = {
        "name": item.name,
        "group": call.kind.group,
        "kind": call.kind.plural,
        "uid": item.obj["metadata"]["uid"],
    }
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
    return msgspec.json.encode(status) + b"\n"
