"""Dispatch: which webhooks a write is subject to, and the call of one.

Source: apiserver `webhook/generic`, `webhook/matchconditions`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from moorage.api.errors import (
    BadRequestError,
    InternalError,
    ServerTimeoutError,
    TooManyRequestsError,
)
from moorage.apiserver.admission.admission_request import in_version, input_of, refused
from moorage.apiserver.admission.authorization import Decide, authorizing
from moorage.apiserver.admission.matching import matched_version
from moorage.apiserver.admission.webhooks.review import (
    VERSIONS,
    Response,
    ReviewError,
    rejection,
    response_of,
    review_of,
)
from moorage.apiserver.admission.webhooks.sources import Webhook
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes, Request
from moorage.wire.webhooks import CallError, WebhookClient

DEADLINE_S = 60.0
"""How long all webhooks of one request may take together, whatever it writes, and again."""

_TIMEOUT_S = 10
_WITHOUT_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_RETRY = {"retryAfterSeconds": 1}

_log = logging.getLogger("webhooks")


class WebhookSource(Protocol):
    """Reads the webhooks of one kind of configuration, in the order in which they are called."""

    def webhooks(self) -> Sequence[Webhook]: ...


class Dispatch:
    """Selects and calls webhooks; the same for mutating and validating ones."""

    def __init__(
        self,
        client: WebhookClient,
        evaluator: Evaluator,
        namespace: Callable[[str], Obj | None],
        decide: Decide,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`namespace` returns a Namespace by its name; a request's calls have `deadline_s`."""
        self._deadline_s = deadline_s
        self._client = client
        self._evaluator = evaluator
        self._namespace = namespace
        self._decide = decide

    def selects(self, webhook: Webhook, attributes: Attributes) -> Served | None:
        """Return the version in which rules and selectors select a write, None if they do not."""
        return matched_version(webhook.match, attributes, self._labels_of)

    async def meets_conditions(
        self, webhook: Webhook, attributes: Attributes, served: Served
    ) -> bool:
        """Return whether the match conditions hold.

        Raises ForbiddenError when one has no value and none is false, unless failures are ignored.
        """
        conditions = webhook.fields.get("matchConditions")
        if not conditions:
            return True
        # A policy that denies always does so exactly when its conditions hold.
        policy = {"matchConditions": conditions, "validations": [{"expression": "false"}]}
        namespace = self._namespace(attributes.namespace) if attributes.namespace else None
        given = await in_version(attributes, served, input_of, attributes, served, namespace)
        try:
            results = await self._evaluator.policy_results(
                webhook.uid, policy, given, [None],
                authorizing(self._decide, attributes.request.user),
            )  # fmt: skip
        except LimitError as error:
            return _unless_ignored(webhook, attributes, str(error))
        except BusyError as error:
            raise TooManyRequestsError(str(error), dict(_RETRY)) from error
        decisions = results[0].decisions
        if decisions and decisions[0].is_error:
            return _unless_ignored(webhook, attributes, decisions[0].message)
        return bool(decisions)

    async def call(
        self, webhook: Webhook, attributes: Attributes, served: Served, *, is_mutating: bool
    ) -> Response | None:
        """Return a webhook's answer that allows the write; None for a failure to ignore.

        Raises the StatusError of a denial, and InternalError for a failure.
        """
        try:
            response = await self._response(webhook, attributes, served, is_mutating=is_mutating)
        except CallError as error:
            failed(webhook, f"failed to call webhook: {error}")
            return None
        except ReviewError as error:
            failed(webhook, f"received invalid webhook response: {error}")
            return None
        for key, value in (response.audit_annotations or {}).items():
            attributes.request.annotate(f"{webhook.name}/{key}", value)
        for warning in response.warnings or ():
            attributes.request.warn(warning)
        if not response.allowed:
            raise rejection(webhook.name, response)
        return response

    async def _response(
        self, webhook: Webhook, attributes: Attributes, served: Served, *, is_mutating: bool
    ) -> Response:
        fields = webhook.fields
        if attributes.request.is_dry_run and fields.get("sideEffects") not in _WITHOUT_SIDE_EFFECTS:
            raise BadRequestError(f'admission webhook "{webhook.name}" does not support dry run')
        versions = [one for one in fields["admissionReviewVersions"] if one in VERSIONS]
        if not versions:
            raise CallError("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
        uid = str(uuid.uuid4())
        review = await in_version(
            attributes, served, review_of, versions[0], uid, attributes, served
        )
        body = await self._client.post(
            fields["clientConfig"],
            review,
            fields.get("timeoutSeconds") or _TIMEOUT_S,
        )
        return response_of(body, versions[0], uid, is_mutating=is_mutating)

    @asynccontextmanager
    async def deadline(self, request: Request) -> AsyncIterator[None]:
        """Bound the time of all calls of a request. Raises ServerTimeoutError.

        A write that starts again after a conflict, which a webhook may cause by writing the same
        object, has what is left.
        """
        if request.webhooks_until is None:
            request.webhooks_until = asyncio.get_running_loop().time() + self._deadline_s
        try:
            async with asyncio.timeout_at(request.webhooks_until):
                yield
        except TimeoutError as error:
            raise ServerTimeoutError(
                "Timeout: request did not complete within requested timeout"
            ) from error

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self._namespace(namespace)
        labels: Mapping[str, str] = ((found or {}).get("metadata") or {}).get("labels") or {}
        return labels


def failed(webhook: Webhook, why: str) -> None:
    """Log a failure that the webhook's policy ignores. Raises InternalError for any other."""
    text = f'failed calling webhook "{webhook.name}": {why}'
    if not webhook.ignores_failures:
        raise InternalError.of(text)
    _log.warning("failing open: %s", text)


def _unless_ignored(webhook: Webhook, attributes: Attributes, why: str) -> bool:
    if webhook.ignores_failures:
        return False
    raise refused(attributes, why)
