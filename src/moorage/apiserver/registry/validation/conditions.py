"""Condition validation: lists of `metav1.Condition` in a status.

Source: apimachinery `meta/v1/validation.ValidateConditions` of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from moorage.api import names
from moorage.apiserver.registry.declare.rules import (
    Unique,
    at_least,
    follows,
    most_bytes,
    part,
    required,
    required_as,
    required_one_of,
    satisfies,
    unless_empty,
)

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_MESSAGE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    f"used for validation is '{_REASON.pattern}')"
)

condition_errors = part(
    ("[*]", Unique(lambda condition: condition.get("type", ""))),
    ("[*].type", required_as("is required"), unless_empty(follows(names.qualified_name_errors))),
    ("[*].status", required_one_of("False", "True", "Unknown")),
    ("[*].observedGeneration", at_least(0, "must be greater than or equal to zero")),
    ("[*].lastTransitionTime", required),
    (
        "[*].reason",
        required,
        unless_empty(satisfies(_REASON.fullmatch, _REASON_MESSAGE)),
        most_bytes(1024),
    ),
    ("[*].message", most_bytes(32 * 1024)),
)
"""Validate a list of conditions, whose types must be unique."""
