"""MutatingAdmissionWebhook plugin: webhooks that change a write, called one after the other.

A change makes the mutating plugins run a second time; webhooks with the reinvocation policy
`IfNeeded` are then called again if the object changed after their call. Source: apiserver
`webhook/mutating`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Sequence

import msgspec

from moorage.api.errors import InternalError, StatusError
from moorage.apiserver.admission.admission_request import Patching, is_shown
from moorage.apiserver.admission.chain import ANY, CONNECT, CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.admission.webhooks.dispatch import Dispatch, WebhookSource, failed
from moorage.apiserver.admission.webhooks.review import Response, ReviewError
from moorage.apiserver.admission.webhooks.sources import Webhook
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.patch.json_patch import MAX_OPERATIONS, apply_json_patch
from moorage.apiserver.registry.request import Attributes, Reinvocation, Turn
from moorage.apiserver.registry.worker import LARGE_OBJECT_BYTES

# ValidatingAdmissionWebhook plugin: webhooks that permit or deny a write, called in parallel.
#
# Source: apiserver `webhook/validating`.

_FAILED_OPEN = "failed-open.validating.webhook.admission.k8s.io/"
"""Prefix of audit annotations about webhooks whose failure is ignored."""


class ValidatingWebhooks:
    """Asks the webhooks that select a write, and refuses what one of them denies."""

    name = "ValidatingAdmissionWebhook"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE, CONNECT], [ANY])
    mutate = None

    def __init__(self, source: WebhookSource, dispatch: Dispatch) -> None:
        self._source = source
        self._dispatch = dispatch

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the calls of the webhooks that select the write, None without any."""
        webhooks = self._source.webhooks()
        if not webhooks or not is_shown(attributes):
            return None
        selected = [
            (webhook, served)
            for webhook in webhooks
            if (served := self._dispatch.selects(webhook, attributes))
        ]
        return self._ask(attributes, selected) if selected else None

    async def _ask(
        self, attributes: Attributes, selected: Sequence[tuple[Webhook, Served]]
    ) -> None:
        """Call the webhooks. Raises the first of their refusals, in their order."""
        async with self._dispatch.deadline(attributes.request):
            met = [
                (webhook, served)
                for webhook, served in selected
                if await self._dispatch.meets_conditions(webhook, attributes, served)
            ]
            answers = await asyncio.gather(
                *(
                    self._dispatch.call(webhook, attributes, served, is_mutating=False)
                    for webhook, served in met
                ),
                return_exceptions=True,
            )
        for index, answer in enumerate(answers):
            if answer is None:
                key = f"{_FAILED_OPEN}round_0_index_{index}"
                attributes.request.annotate(key, met[index][0].name)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer


_MUTATION = "mutation.webhook.admission.k8s.io/"
"""Prefix of audit annotations about calls: whether they changed the object."""


class MutatingWebhooks:
    """Lets the webhooks that select a write change it."""

    name = "MutatingAdmissionWebhook"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE, CONNECT], [ANY])
    validate = None

    def __init__(self, source: WebhookSource, dispatch: Dispatch, patching: Patching) -> None:
        self._source = source
        self._dispatch = dispatch
        self._patching = patching

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
        turn = state.turns[self.name]
        if state.is_second and turn.last != attributes.obj:
            turn.call_candidates_again()
        async with self._dispatch.deadline(attributes.request):
            for index, webhook in enumerate(webhooks):
                if not state.is_second or webhook.uid in turn.again:
                    place = f"round_{int(state.is_second)}_index_{index}"
                    await self._ask(webhook, attributes, state, turn, place)
        turn.last = copy.deepcopy(attributes.obj)

    async def _ask(
        self,
        webhook: Webhook,
        attributes: Attributes,
        state: Reinvocation,
        turn: Turn,
        place: str,
    ) -> None:
        """Call a webhook if it selects the write, and apply its patch.

        `place` is that of the call, in the audit annotations.
        """
        served = self._dispatch.selects(webhook, attributes)
        if served is None:
            return
        if not await self._dispatch.meets_conditions(webhook, attributes, served):
            return
        response = await self._dispatch.call(webhook, attributes, served, is_mutating=True)
        if response is None:
            attributes.request.annotate(f"failed-open.{_MUTATION}{place}", webhook.name)
        else:
            is_changed = await self._apply(webhook, attributes, served, response)
            said = {"configuration": webhook.configuration, "webhook": webhook.name}
            value = msgspec.json.encode({**said, "mutated": is_changed}).decode()
            attributes.request.annotate(_MUTATION + place, value)
            if is_changed:
                turn.call_candidates_again()
                state.is_needed = True
        if webhook.fields.get("reinvocationPolicy") == "IfNeeded":
            turn.candidates.add(webhook.uid)

    async def _apply(
        self, webhook: Webhook, attributes: Attributes, served: Served, response: Response
    ) -> bool:
        """Apply the patch of a response, if any. Returns whether it changed the object.

        Raises InternalError for a patch that cannot be applied.
        """
        request = attributes.request
        request.is_large = request.is_large or len(response.patch or "") > LARGE_OBJECT_BYTES
        try:
            operations = await self._patching.run(attributes, _operations, response)
        except ReviewError as error:
            failed(webhook, f"received undecodable patch in webhook response: {error}")
            return False
        if not operations:
            return False
        if attributes.obj is None:
            raise InternalError.of(
                f'admission webhook "{webhook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        return await self._patching.apply(
            attributes, served, lambda whole: _patched(whole, operations)
        )


def _patched(whole: Obj, operations: list[Obj]) -> object:
    try:
        return apply_json_patch(whole, operations)
    except StatusError as error:
        raise InternalError.of(error.message) from error


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
