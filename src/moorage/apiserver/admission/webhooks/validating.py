"""ValidatingAdmissionWebhook plugin: webhooks that permit or deny a write, called in parallel.

Source: apiserver `webhook/validating`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from moorage.apiserver.admission.admission_request import is_shown
from moorage.apiserver.admission.chain import ANY, CONNECT, CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.admission.webhooks.dispatch import Dispatch, WebhookSource
from moorage.apiserver.admission.webhooks.sources import Webhook
from moorage.apiserver.registry.kind import Served
from moorage.apiserver.registry.request import Attributes

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
