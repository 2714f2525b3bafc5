"""CEL expressions of kinds: where one is needed, and whether those of policies compile."""

from __future__ import annotations

from moorage.api.errors import FieldError, TooManyRequestsError
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.registry.expressions import Evaluated, Obj

_RETRY = {"retryAfterSeconds": 1}


async def policy_expressions(evaluator: Evaluator, policy: Obj, old: Obj | None) -> Evaluated:
    """Compile the expressions of a policy, unless the old one had the same."""
    spec = policy["spec"]
    if old is not None and old["spec"] == spec:
        return Evaluated()
    return Evaluated(await _errors(evaluator, spec, "spec"))


async def webhook_expressions(
    evaluator: Evaluator, configuration: Obj, old: Obj | None
) -> Evaluated:
    """Compile the match conditions of webhooks, unless the old configuration had the same."""
    conditions = _conditions(configuration)
    if old is not None and _conditions(old) == conditions:
        return Evaluated()
    errors: list[FieldError] = []
    for index, own in enumerate(conditions):
        if own:
            errors += await _errors(evaluator, {"matchConditions": own}, f"webhooks[{index}]")
    return Evaluated(errors)


def _conditions(configuration: Obj) -> list[list[Obj]]:
    return [webhook.get("matchConditions", []) for webhook in configuration.get("webhooks", ())]


async def _errors(evaluator: Evaluator, policy: Obj, path: str) -> list[FieldError]:
    try:
        problems = await evaluator.policy_problems(policy)
    except LimitError as error:
        return [FieldError.forbidden(path, f"compilation failed: {error}")]
    except BusyError as error:
        raise TooManyRequestsError(str(error), dict(_RETRY)) from error
    return [FieldError.invalid(f"{path}{one.path}", one.value, one.detail) for one in problems]


def expression_errors(
    expression: str, path: str, *, detail: str = "", limit_bytes: int | None = None
) -> list[FieldError]:
    """Validate the text of a required CEL expression.

    `detail` is the detail of the error about an empty expression; `limit_bytes` the largest length
    without the spaces around the expression, None for no limit.
    """
    trimmed = expression.strip()
    if not trimmed:
        return [FieldError.required(path, detail)]
    if limit_bytes is not None and len(trimmed.encode()) > limit_bytes:
        return [FieldError.required(path, f"must not exceed {limit_bytes} bytes in length")]
    return []
