"""ControllerRevisions: the numbered templates of StatefulSets and DaemonSets."""

from moorage.controllers.revisions.history import (
    History,
    expired,
    next_number,
    revision_data,
    sort_history,
    template_of,
)
from moorage.controllers.revisions.owners import RevisionOwners
from moorage.controllers.revisions.requests import Named, RevisionRequests

__all__ = [
    "History",
    "Named",
    "RevisionOwners",
    "RevisionRequests",
    "expired",
    "next_number",
    "revision_data",
    "sort_history",
    "template_of",
]
