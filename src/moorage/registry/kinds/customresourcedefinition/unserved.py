"""Features of custom resources that Moorage does not serve yet and refuses at creation.

A definition that asks for it would be established and not behave as it says.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.registry.kind import Obj


def unserved_errors(definition: Obj) -> Iterator[FieldError]:
    """Yield an error for each part of a legal definition that is not served yet."""
    if definition["spec"].get("conversion", {}).get("strategy") == "Webhook":
        yield FieldError.forbidden(
            "spec.conversion.strategy", "conversion webhooks are not called by Moorage yet"
        )
