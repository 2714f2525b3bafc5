"""Revision history: which revision has the present template, and which may be deleted.

A revision's data is the patch that puts its template back, as `kubectl rollout undo` applies it. A
template that comes back is found again and gets the highest number. Source: API docs
"ControllerRevision", `controller/history`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from moorage.api.meta import Raw
from moorage.api.workloads import ControllerRevision
from moorage.controllers.templates import is_same_template

_DIRECTIVE = "$patch"


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one object, each part in the order of their numbers.

    `current` has the present template, None if no revision has it; `duplicates` are further
    revisions with it, and `old` are those of other templates.
    """

    current: ControllerRevision | None
    duplicates: tuple[ControllerRevision, ...]
    old: tuple[ControllerRevision, ...]


def revision_data(template: Raw) -> Raw:
    """Return the data of a template's revision: the patch that replaces the present template.

    Its keys are sorted, as those of kube-controller-manager and of tools, which compare the bytes.
    """
    patch = {**template, _DIRECTIVE: "replace"}
    return {"spec": {"template": msgspec.to_builtins(patch, order="sorted")}}


def template_of(revision: ControllerRevision) -> Raw:
    """Return the template that the revision restores."""
    template = ((revision.data or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != _DIRECTIVE}


def sort_history(revisions: Iterable[ControllerRevision], template: Raw) -> History:
    """Divide the revisions by whether they have the template; of several the last is current."""
    same: list[ControllerRevision] = []
    old: list[ControllerRevision] = []
    for revision in sorted(revisions, key=_order):
        (same if is_same_template(template_of(revision), template) else old).append(revision)
    current = same.pop() if same else None
    return History(current, tuple(same), tuple(old))


def next_number(revisions: Iterable[ControllerRevision]) -> int:
    """Return the number above those of all revisions."""
    return max((revision.revision for revision in revisions), default=0) + 1


def expired(
    old: Iterable[ControllerRevision], live: Collection[str], limit: int, *, counts_live: bool
) -> list[ControllerRevision]:
    """Return the old revisions beyond the limit, lowest numbers first.

    Those named in `live` are never among them. `counts_live` is whether they use up the limit, as
    they do for DaemonSets but not for StatefulSets.
    """
    ordered = sorted(old, key=_order)
    unused = [revision for revision in ordered if revision.metadata.name not in live]
    surplus = len(ordered if counts_live else unused) - limit
    return unused[: max(0, surplus)] if limit >= 0 else []


def _order(revision: ControllerRevision) -> tuple[int, str, str]:
    meta = revision.metadata
    return revision.revision, meta.creation_timestamp or "", meta.name
