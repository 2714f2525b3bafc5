"""MutatingAdmissionWebhook plugin: webhooks that change a write, called one after the other.

A change makes the mutating plugins run a second time; webhooks with the reinvocation policy
`IfNeeded` are then called again if the object changed after their call. Source: apiserver
`webhook/mutating`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Sequence

import msgspec

from moorage.admission.admission_request import in_version, is_shown, versioned
from moorage.admission.chain import ANY, CREATE, DELETE, UPDATE, Scope
from moorage.admission.webhooks.dispatch import Dispatch, WebhookSource, failed
from moorage.admission.webhooks.review import Response, ReviewError
from moorage.admission.webhooks.sources import Webhook
from moorage.api import bounds
from moorage.api.errors import InternalError, StatusError
from moorage.registry.codec import Codec
from moorage.registry.kind import Obj, Served
from moorage.registry.patch.json_patch import MAX_OPERATIONS, apply_json_patch
from moorage.registry.request import Attributes, Reinvocation
from moorage.registry.schema.errors import DecodeError
from moorage.registry.worker import LARGE_OBJECT_BYTES, Worker

_SYSTEM_FIELDS = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
)  # fmt: skip
"""Metadata that stays as it is, whatever a webhook answers."""


class MutatingWebhooks:
    """Lets the webhooks that select a write change it."""

    name = "MutatingAdmissionWebhook"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE], [ANY])
    validate = None

    def __init__(
        self, source: WebhookSource, dispatch: Dispatch, codec: Codec, worker: Worker
    ) -> None:
        self._source = source
        self._dispatch = dispatch
        self._codec = codec
        self._worker = worker

    def mutate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the calls of the webhooks, None if none selects the write."""
        webhooks = self._source.webhooks()
        if not webhooks or not is_shown(attributes):
            return None
        # Without a first change no other webhook can come to select the write.
        if not any(self._dispatch.selects(webhook, attributes) for webhook in webhooks):
            return None
        return self._run(attributes, webhooks)

    async def _run(self, attributes: Attributes, webhooks: Sequence[Webhook]) -> None:
        state = attributes.reinvocation = attributes.reinvocation or Reinvocation()
        if state.is_second and state.last != attributes.obj:
            state.call_candidates_again()
        async with self._dispatch.deadline():
            for webhook in webhooks:
                if not state.is_second or webhook.uid in state.again:
                    await self._ask(webhook, attributes, state)
        state.last = copy.deepcopy(attributes.obj)

    async def _ask(self, webhook: Webhook, attributes: Attributes, state: Reinvocation) -> None:
        """Call a webhook if it selects the write, and apply its patch."""
        served = self._dispatch.selects(webhook, attributes)
        if served is None:
            return
        if not await self._dispatch.meets_conditions(webhook, attributes, served):
            return
        response = await self._dispatch.call(webhook, attributes, served, is_mutating=True)
        if response is not None and await self._apply(webhook, attributes, served, response):
            state.call_candidates_again()
            state.is_needed = True
        if webhook.fields.get("reinvocationPolicy") == "IfNeeded":
            state.candidates.add(webhook.uid)

    async def _apply(
        self, webhook: Webhook, attributes: Attributes, served: Served, response: Response
    ) -> bool:
        """Apply the patch of a response, if any. Returns whether it changed the object.

        Raises InternalError for a patch that cannot be applied.
        """
        try:
            operations = _operations(response)
        except ReviewError as error:
            failed(webhook, f"received undecodable patch in webhook response: {error}")
            return False
        if not operations:
            return False
        obj = attributes.obj
        if obj is None:
            raise InternalError.of(
                f'admission webhook "{webhook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        request = attributes.request
        request.is_large = request.is_large or len(response.patch or "") > LARGE_OBJECT_BYTES
        if served.is_remote:
            new = await in_version(
                attributes, served, self._patched, attributes, served, operations
            )
        else:
            new = await self._worker.run(request, self._patched, attributes, served, operations)
        is_changed = bool(new != obj)
        obj.clear()
        obj.update(new)
        return is_changed

    def _patched(self, attributes: Attributes, served: Served, operations: list[Obj]) -> Obj:
        """Return the object after a patch, with defaults, in the storage version."""
        kind, old = attributes.kind, attributes.obj
        assert old is not None
        whole = versioned(kind.name, served, old)
        assert whole is not None
        try:
            new = apply_json_patch(whole, operations)
            if excess := bounds.exceeded(new):
                raise InternalError.of(f"the patched object cannot be taken: {excess}")
            _check_type(new, whole)
            fitted = self._codec.fit_type(served.type, new).obj
        except DecodeError as error:
            raise InternalError.of(f"the patched object does not decode: {error}") from error
        except InternalError:
            raise
        except StatusError as error:
            raise InternalError.of(error.message) from error
        stored = self._codec.to_storage(kind, served, fitted)
        _keep_system_fields(stored, old)
        return stored


def _operations(response: Response) -> list[Obj]:
    """Return the operations of a response's patch. Raises ReviewError."""
    patch = response.operations()
    if not patch:
        return []
    try:
        operations = msgspec.json.decode(patch, type=list[Obj])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ReviewError(str(error)) from error
    if len(operations) > MAX_OPERATIONS:
        raise ReviewError(f"more than {MAX_OPERATIONS} operations")
    return operations


def _check_type(new: object, old: Obj) -> None:
    """Raise InternalError unless a patch left an object of the same kind."""
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise InternalError.of("the patched object has no metadata")
    for field in ("apiVersion", "kind"):
        if new.get(field) != old[field]:
            raise InternalError.of(f"the patch changes {field}")


def _keep_system_fields(new: Obj, old: Obj) -> None:
    meta, was = new["metadata"], old["metadata"]
    for field in _SYSTEM_FIELDS:
        if field in was:
            meta[field] = was[field]
        else:
            meta.pop(field, None)
