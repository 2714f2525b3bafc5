"""CEL expression validation: the bounds of an expression's text.

Expressions are not compiled yet: `expression_errors` is the one place where the compiler's errors
will be added. Source: admissionregistration and apiextensions validation of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.api.errors import FieldError


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
