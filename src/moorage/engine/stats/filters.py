"""Filters of statistics. Pure. Source: CRI `*StatsFilter`."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.engine.labels import has_labels
from moorage.engine.stats.subjects import ContainerSubject, SandboxSubject
from moorage.wire.cri import pb


def select_containers(
    subjects: Iterable[ContainerSubject], filter_: pb.ContainerStatsFilter | None
) -> list[ContainerSubject]:
    """Return the containers that match every part of the filter; an empty part matches all.

    An id may be abbreviated, as everywhere in the CRI.
    """
    if filter_ is None:
        return list(subjects)
    return [
        subject
        for subject in subjects
        if subject.id.startswith(filter_.id)
        and subject.sandbox_id.startswith(filter_.pod_sandbox_id)
        and has_labels(subject.labels, filter_.label_selector)
    ]


def select_sandboxes(
    subjects: Iterable[SandboxSubject], filter_: pb.PodSandboxStatsFilter | None
) -> list[SandboxSubject]:
    """Return the sandboxes that match every part of the filter, as `select_containers`."""
    if filter_ is None:
        return list(subjects)
    return [
        subject
        for subject in subjects
        if subject.id.startswith(filter_.id) and has_labels(subject.labels, filter_.label_selector)
    ]
