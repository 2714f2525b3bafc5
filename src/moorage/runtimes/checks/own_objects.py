"""Own objects of manifests: which ones are of our group, and where their errors are."""

from __future__ import annotations

import re

from moorage.api.errors import FieldError
from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP
from moorage.runtimeclass.demands import Path

_STEP = re.compile(r"[^.\[\]]+")


def is_own(value: Raw) -> bool:
    """Return whether an object is of our group."""
    return str(value.get("apiVersion", "")).partition("/")[0] == GROUP


def path_of(error: FieldError) -> Path:
    """Return the steps of an error's field."""
    steps = _STEP.findall(error.field)
    return tuple(int(step) if step.isdigit() else step for step in steps)
