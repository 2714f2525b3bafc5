"""Temporary classes: those of probes and measurements, which are there for their own pods alone.

They are gone when probe or measurement ends, so no pod is given one, and no pod but a probe may
name one of probes. The name alone says that a class is one of probes: an agent that is hostile
could leave out the label, and admission need not know the class.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.runtime_group import (
    MEASUREMENT_LABEL,
    PROBE_CLASS_PREFIX,
    PROBE_LABEL,
    PROBE_NAMESPACE,
)


def is_temporary(name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a class is one of probes or of a measurement."""
    return (
        name.startswith(PROBE_CLASS_PREFIX)
        or PROBE_LABEL in labels
        or (MEASUREMENT_LABEL in labels)
    )


def is_closed(class_name: object, namespace: str) -> bool:
    """Return whether pods of a namespace may not name a class, because it is one of probes."""
    return (
        isinstance(class_name, str)
        and class_name.startswith(PROBE_CLASS_PREFIX)
        and namespace != PROBE_NAMESPACE
    )
