"""Resource verbs: from a call to the registry and back to a reply.

Source: API docs "Kubernetes API Concepts". The kind's strategy decides details such as the
object returned by DELETE and the status code of PUT.
"""

from __future__ import annotations

from functools import partial

import msgspec

from moorage.api.errors import BadRequestError
from moorage.api.headers import STORE_HEADER
from moorage.apiserver.endpoints.bodies import BodyDecoder
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.list_body import KeptBatches
from moorage.apiserver.endpoints.negotiation import PARTIAL, PARTIAL_LIST, PLAIN, Representation
from moorage.apiserver.endpoints.options import delete_options, int_option, write_request
from moorage.apiserver.endpoints.patching import Patcher
from moorage.apiserver.endpoints.replies import GZIP_FROM_BYTES, STATUS, Reply, formed, success
from moorage.apiserver.endpoints.representations import list_body, object_body, protobuf_body
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.custom.conversion import ConversionError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.listing import (
    Listed,
    Lister,
    ListOptions,
    parse_revision,
    wait_fresh,
)
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import Request
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.worker import LARGE_OBJECT_BYTES, Worker


class Resources(msgspec.Struct, frozen=True):
    """Serves the verbs on objects and collections."""

    codec: Codec
    decoder: BodyDecoder
    worker: Worker
    objects: Objects
    lister: Lister
    patcher: Patcher
    kept: KeptBatches = msgspec.field(default_factory=KeptBatches)

    async def get(self, call: Call) -> Reply:
        """Answer GET of one object. Raises NotFoundError."""
        form = call.form()
        wanted = parse_revision(call.query.get("resourceVersion", ""))
        if wanted > self.lister.cache.revision:
            await wait_fresh(self.lister.cache, wanted)
        # Metadata is shown as it is stored: it needs no conversion of a custom resource.
        if call.kind.view is None or form.as_ == PARTIAL:
            item = self.objects.get(call.kind, call.namespace, call.target.name)
        else:
            item = await self.objects.read(call.kind, call.namespace, call.target.name)
        body = object_body(self.codec, call.kind, call.served, item, form, call.query)
        if form is PLAIN:
            return Reply(body, is_compressible=True)
        return await self._formed(call, body, form)

    async def list(self, call: Call) -> Reply:
        """Answer GET of a collection: a list, a page of it, or a watch."""
        form = call.form(is_list=True)
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
            needs_metadata_only=form.as_ == PARTIAL_LIST,
            has_initial_events="sendInitialEvents" in query,
        )
        listed = await self.lister.page(call.kind, call.namespace, options)
        reply = await self._listed(call, listed, form)
        # An agent must not conclude from another store's list that its pods are gone.
        reply.headers[STORE_HEADER] = self.lister.store.identity
        reply.warnings = [str(damage) for damage in listed.damage]
        return reply

    async def create(self, call: Call) -> Reply:
        call.form()
        request = write_request(
            call.user, call.user_agent, call.query, "CreateOptions", annotations=call.annotations
        )
        obj = await self.decoder.decode(call, request)
        item = await self.objects.create(request, call.kind, call.served, call.namespace, obj)
        return await self._written(call, request, item, 201)

    async def update(self, call: Call, subresource: str = "") -> Reply:
        """Answer PUT of an object or subresource: 200, or 201 where the kind creates on update."""
        call.form()
        request = write_request(
            call.user, call.user_agent, call.query, "UpdateOptions", annotations=call.annotations
        )
        obj = await self.decoder.decode(call, request)
        check_name(obj, call.target.name)
        body = msgspec.json.encode(obj)

        def make_new(_: Obj | None) -> Obj:
            # After a revision conflict the update is rebuilt from the request body.
            fresh: Obj = msgspec.json.decode(body)
            return fresh

        may_create = call.kind.strategy.may_create_on_update and not subresource
        updated = await self.objects.update(
            request,
            *call.place,
            make_new,
            subresource=subresource,
            authorize_create=partial(call.require, "create") if may_create else None,
        )
        return await self._written(call, request, updated.item, 201 if updated.is_created else 200)

    async def patch(self, call: Call, subresource: str = "") -> Reply:
        form = call.form()
        request, updated = await self.patcher.patch(call, subresource)
        item = updated.item
        if call.kind.view is not None and form.as_ != PARTIAL:
            (item,) = await call.kind.view.see([item])
        return await self._written(call, request, item, 201 if updated.is_created else 200)

    async def delete(self, call: Call) -> Reply:
        """Answer DELETE of one object, with a Status or the object, as the kind's strategy says."""
        form = call.form()
        request = Request(user=call.user, user_agent=call.user_agent, annotations=call.annotations)
        sent = await self.decoder.delete_options(call, request)
        options, request.is_dry_run = delete_options(call.query, sent)
        deleted = await self.objects.delete(request, *call.place, options)
        if deleted.is_gone and not call.kind.strategy.returns_deleted:
            return formed(
                deletion_status(call, deleted.item), Representation(form.media), type_name=STATUS
            )
        item = deleted.item
        if call.kind.view is not None and form.as_ != PARTIAL:
            try:
                (item,) = await call.kind.view.see([item])
            except ConversionError as error:
                # It is deleted all the same; to say otherwise would stop what waits for it.
                request.warn(error.message)
                reply = formed(
                    deletion_status(call, item), Representation(form.media), type_name=STATUS
                )
                reply.warnings = request.warnings
                return reply
        return await self._written(call, request, item, 200)

    async def delete_collection(self, call: Call) -> Reply:
        """Answer DELETE of a collection with the list of matched objects, as they were."""
        form = call.form(is_list=True)
        request = Request(user=call.user, user_agent=call.user_agent, annotations=call.annotations)
        sent = await self.decoder.delete_options(call, request)
        options, request.is_dry_run = delete_options(call.query, sent)
        selection = select(
            call.kind,
            call.served,
            call.query.get("labelSelector", ""),
            call.query.get("fieldSelector", ""),
        )
        deleted = await self.objects.delete_collection(
            request, call.kind, call.served, call.namespace, selection, options
        )
        if call.kind.view is not None and form.as_ != PARTIAL_LIST:
            try:
                deleted = await call.kind.view.see(deleted)
            except ConversionError as error:
                request.warn(error.message)
                return success(200, Representation(form.media), request.warnings)
        return await self._listed(call, self.lister.as_listed(deleted), form)

    async def _listed(self, call: Call, listed: Listed, form: Representation) -> Reply:
        """Return a list in the negotiated form; a long one is encoded while it is sent."""
        if form.media is Media.PROTOBUF:
            message = await protobuf_body(self.codec, call.kind, call.served, listed, form)
            if message.length <= GZIP_FROM_BYTES:
                return Reply(b"".join(message.pieces()), content_type=form.content_type)
            return Reply(b"", content_type=form.content_type, is_compressible=True, long=message)
        body = list_body(self.codec, call.kind, call.served, listed, form, call.query, self.kept)
        if form.media is Media.YAML:
            return await self._formed(call, body.whole(), form)
        whole = body.whole_below(GZIP_FROM_BYTES)
        if whole is not None:
            return Reply(whole, is_indented=form.is_indented)
        return Reply(b"", is_compressible=True, long=body, is_indented=form.is_indented)

    async def _written(self, call: Call, request: Request, item: Stored, status: int) -> Reply:
        form = call.form()
        body = object_body(self.codec, call.kind, call.served, item, form, call.query)
        reply = await self._formed(call, body, form, status)
        reply.warnings = request.warnings
        return reply

    async def _formed(
        self,
        call: Call,
        body: bytes,
        form: Representation,
        status: int = 200,
    ) -> Reply:
        """Return a body in the negotiated form; large YAML is encoded off the event loop."""
        if form.media is Media.PROTOBUF:
            return Reply(body, status, form.content_type, is_compressible=True)
        if form.media is Media.JSON or len(body) <= LARGE_OBJECT_BYTES:
            return formed(body, form, status)
        request = Request(user=call.user, is_large=True)
        return await self.worker.run(request, formed, body, form, status)


def check_name(obj: Obj, name: str) -> None:
    """Raise BadRequestError for an object with another name than the URL."""
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


def deletion_status(call: Call, item: Stored) -> bytes:
    """Return the Status of a deletion, as JSON."""
    details = {
        "name": item.name,
        "group": call.kind.group,
        "kind": call.kind.plural,
        "uid": item.obj["metadata"].get("uid", ""),
    }
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
    return msgspec.json.encode(status) + b"\n"
