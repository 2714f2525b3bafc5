"""Findings about a cluster's store: what `moor doctor --deep` adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.api.text import counted
from moorage.apiserver.registry.deletion import UNREAD_OPTION
from moorage.apiserver.storage import Inspection, inspect
from moorage.cluster.host.findings import Finding, State
from moorage.cluster.layout import Layout

_SUBJECT = "store"
_RESTORE = "moor down --keep-pods, put a copy of the db directory back, moor up --accept-loss"
_REMOVE = f"the same, or DELETE the object with ?{UNREAD_OPTION}=true"


def examine_store(
    layout: Layout, inspect: Callable[[Path], Inspection] = inspect
) -> tuple[Finding, ...]:
    """Read a cluster's whole store; return the findings. The cluster may be running. Blocks."""
    path = layout.database
    try:
        inspection = inspect(path)
    except FileNotFoundError:
        if not layout.store_mark.exists():
            return (Finding(_SUBJECT, State.OK, f"{path} is not made yet"),)
        return (Finding(_SUBJECT, State.PROBLEM, f"{path} is gone", _RESTORE),)
    except PermissionError:
        meaning = f"{path} cannot be read, or is empty"
        return (Finding(_SUBJECT, State.WARNING, meaning, "run as root: sudo moor …"),)
    findings = tuple(_findings(inspection))
    return findings or (
        Finding(_SUBJECT, State.OK, f"{counted(inspection.rows, 'change')}, none damaged"),
    )


def _findings(inspection: Inspection) -> Iterator[Finding]:
    for damage in inspection.damage:
        yield Finding(_SUBJECT, State.WARNING, str(damage), _REMOVE)
    for complaint in inspection.complaints:
        yield Finding(_SUBJECT, State.WARNING, f"SQLite: {complaint}", _RESTORE)
