"""CEL expressions of admission policies: whether they compile.

Source: admissionregistration validation of Kubernetes 1.37.
"""

from __future__ import annotations

from moorage.api.errors import FieldError, TooManyRequestsError
from moorage.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.registry.expressions import Evaluated, Obj

_RETRY = {"retryAfterSeconds": 1}


async def policy_expressions(evaluator: Evaluator, policy: Obj, old: Obj | None) -> Evaluated:
    """Compile the expressions of a policy, unless the old one had the same."""
    spec = policy["spec"]
    if old is not None and old["spec"] == spec:
        return Evaluated()
    try:
        problems = await evaluator.policy_problems(spec)
    except LimitError as error:
        return Evaluated([FieldError.forbidden("spec", f"compilation failed: {error}")])
    except BusyError as error:
        raise TooManyRequestsError(str(error), dict(_RETRY)) from error
    return Evaluated(
        [FieldError.invalid(f"spec{one.path}", one.value, one.detail) for one in problems]
    )
