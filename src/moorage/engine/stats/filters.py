"""Which containers and sandboxes a filter means. Pure. Source: CRI `*StatsFilter`."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.cri import pb
from moorage.engine.labels import has_labels
from moorage.engine.stats.subjects import ContainerSubject, SandboxSubject


def select_containers(
    subjects: Iterable[ContainerSubject], wanted: pb.ContainerStatsFilter | None
) -> list[ContainerSubject]:
    """Those that meet every part of the filter; an empty part, and no filter, is met by all.

    An id may be cut short, as everywhere in the CRI.
    """
    if wanted is None:
        return list(subjects)
    return [
        each
        for each in subjects
        if each.id.startswith(wanted.id)
        and each.sandbox_id.startswith(wanted.pod_sandbox_id)
        and has_labels(each.labels, wanted.label_selector)
    ]


def select_sandboxes(
    subjects: Iterable[SandboxSubject], wanted: pb.PodSandboxStatsFilter | None
) -> list[SandboxSubject]:
    """Those that meet every part of the filter, as `select_containers`."""
    if wanted is None:
        return list(subjects)
    return [
        each
        for each in subjects
        if each.id.startswith(wanted.id) and has_labels(each.labels, wanted.label_selector)
    ]
