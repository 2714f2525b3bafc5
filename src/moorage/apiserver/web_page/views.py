"""Views of the page: what each shows, from the objects of the API. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moorage.api.conditions import is_true
from moorage.api.runtime_group import (
    ISOLATION_LABEL,
    MANAGED,
    MANAGED_LABEL,
    WORKING,
    ProfileFeature,
    RuntimeClass,
    RuntimeProfile,
)
from moorage.apiserver.web_page.objects import NO_CLASS, PHASES, NodeRow, PodRow, shortened
from moorage.runtimeclass.features import FEATURES, Feature, FeatureArea, alike, lacks
from moorage.runtimeclass.temporary_classes import is_temporary

MOST_CLASSES = 500
"""Limit on the classes that one page lists."""
MOST_NODES = 500
"""Limit on the rows of the table of nodes, and on the names in a list of them."""
MOST_HANDLERS = 50
"""Limit on the columns of a table: nodes and profiles may name any number of handlers."""


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """A class, its handler's nodes, and its pods by phase.

    `nodes` are those with the handler, `broken` those where its probe failed.
    """

    name: str
    handler: str
    is_there: bool
    is_managed: bool
    isolation: str
    overhead: Mapping[str, str]
    nodes: tuple[str, ...]
    broken: tuple[str, ...]
    pods: Mapping[str, int]

    @property
    def all_pods(self) -> int:
        """Return how many pods the class has."""
        return sum(self.pods.values())


class HandlerCell(msgspec.Struct, frozen=True):
    """A handler on a node: `state` is `working`, `broken`, `listed` or empty where it is absent."""

    state: str = ""
    detail: str = ""


class HandlerWarning(msgspec.Struct, frozen=True):
    """What ordinary programs cannot do under a handler, as probes on a node found."""

    handler: str
    node: str
    sentence: str


class FeatureRow(msgspec.Struct, frozen=True):
    """A feature, and what the probes of each column found."""

    feature: Feature
    cells: tuple[ProfileFeature, ...]


class FeatureSection(msgspec.Struct, frozen=True):
    """The features of one area; areas without any finding are left out."""

    area: FeatureArea
    rows: tuple[FeatureRow, ...]

    def count(self, state: str) -> int:
        """Return how many findings have a state."""
        return sum(cell.state == state for row in self.rows for cell in row.cells)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The first page. `columns` are the profiles that the features are of, one per column.

    `warnings` are what ordinary programs cannot do under a handler. Each table is bounded. What it
    leaves out is in `left_out`, by what it is: `classes`, `nodes`,
    `handlers`, `columns`.
    """

    classes: tuple[ClassRow, ...]
    handlers: tuple[str, ...]
    nodes: tuple[tuple[str, tuple[HandlerCell, ...]], ...]
    columns: tuple[RuntimeProfile, ...]
    warnings: tuple[HandlerWarning, ...]
    sections: tuple[FeatureSection, ...]
    left_out: Mapping[str, int]


class ClassView(msgspec.Struct, frozen=True):
    """A class with its pods, the first `MOST_PODS` of them."""

    row: ClassRow
    pods: tuple[PodRow, ...]


def overview(
    classes: Iterable[RuntimeClass],
    nodes: Iterable[NodeRow],
    profiles: Iterable[RuntimeProfile],
    pods: Mapping[str, Counter[str]],
) -> Overview:
    """Return the first page's content; classes of probes and measurements are left out.

    `pods` is how many each class has, by phase.
    """
    classes = [one for one in classes if not is_temporary(one.metadata.name, one.metadata.labels)]
    pods = {name: count for name, count in pods.items() if not is_temporary(name, {})}
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    profiles = sorted(profiles, key=lambda profile: (profile.spec.handler, profile.spec.node_name))
    listed = {node.metadata.name: _handlers_of(node) for node in nodes}
    counts = Counter(name for names in listed.values() for name in names)
    for profile in profiles:
        counts[profile.spec.handler] += 1
    handlers = sorted(heapq.nsmallest(MOST_HANDLERS, counts, lambda name: (-counts[name], name)))
    shown = {node.metadata.name for node in nodes[:MOST_NODES]}
    found = {
        (profile.spec.node_name, profile.spec.handler): profile
        for profile in profiles
        if profile.spec.node_name in shown
    }
    distinct = _distinct(profiles)
    columns = distinct[:MOST_HANDLERS]
    rows = class_rows(classes, nodes, profiles, pods)
    return Overview(
        classes=rows[:MOST_CLASSES],
        handlers=tuple(handlers),
        nodes=tuple(
            (
                node.metadata.name,
                tuple(
                    _handler_cell(
                        handler in listed[node.metadata.name],
                        found.get((node.metadata.name, handler)),
                    )
                    for handler in handlers
                ),
            )
            for node in nodes[:MOST_NODES]
        ),
        columns=columns,
        warnings=tuple(
            HandlerWarning(column.spec.handler, column.spec.node_name, sentence)
            for column in columns
            for sentence in lacks(column.status.features)
        ),
        sections=_sections(columns),
        left_out={
            "classes": max(0, len(rows) - MOST_CLASSES),
            "nodes": max(0, len(nodes) - MOST_NODES),
            "handlers": max(0, len(counts) - MOST_HANDLERS),
            "columns": len(distinct) - len(columns),
        },
    )


def class_rows(
    classes: Iterable[RuntimeClass],
    nodes: Iterable[NodeRow],
    profiles: Iterable[RuntimeProfile],
    pods: Mapping[str, Counter[str]],
) -> tuple[ClassRow, ...]:
    """Return a row for each class by name, and for each name that pods have without such a class.

    `pods` is how many each class has, by phase. Pods without a class come last, under the name
    `NO_CLASS`.
    """
    counts: Mapping[str, Counter[str]] = defaultdict(Counter, pods)
    working = _nodes_of_handlers(nodes)
    broken, isolation = _found_by_probes(profiles)
    by_name = {each.metadata.name: each for each in classes}
    missing = sorted(name for name in counts if name not in by_name and name != NO_CLASS)
    rows = [
        _class_row(name, by_name.get(name), counts[name], working, broken, isolation)
        for name in (*sorted(by_name), *missing)
    ]
    if counts[NO_CLASS]:
        rows.append(_class_row(NO_CLASS, None, counts[NO_CLASS], working, broken, isolation))
    return tuple(rows)


def _class_row(
    name: str,
    runtime_class: RuntimeClass | None,
    pods: Counter[str],
    working: Mapping[str, tuple[str, ...]],
    broken: Mapping[str, tuple[str, ...]],
    isolation: Mapping[str, str],
) -> ClassRow:
    handler = "" if runtime_class is None else runtime_class.handler
    labels = {} if runtime_class is None else runtime_class.metadata.labels
    overhead = runtime_class.overhead if runtime_class is not None else None
    return ClassRow(
        name=name,
        handler=handler,
        is_there=runtime_class is not None,
        is_managed=labels.get(MANAGED_LABEL) == MANAGED,
        isolation=labels.get(ISOLATION_LABEL) or isolation.get(handler, ""),
        overhead={} if overhead is None else overhead.pod_fixed,
        # Shared: a thousand classes may have one handler.
        nodes=working.get(handler, ()),
        broken=broken.get(handler, ()) if handler else (),
        pods={phase: pods[phase] for phase in PHASES if pods[phase]}
        | {phase: count for phase, count in sorted(pods.items()) if phase not in PHASES},
    )


def _nodes_of_handlers(nodes: Iterable[NodeRow]) -> dict[str, tuple[str, ...]]:
    having: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for handler in _handlers_of(node):
            having[handler].append(node.metadata.name)
    return {handler: tuple(names) for handler, names in having.items()}


def _handlers_of(node: NodeRow) -> frozenset[str]:
    return frozenset(handler.name for handler in node.status.runtime_handlers)


def _found_by_probes(
    profiles: Iterable[RuntimeProfile],
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return handler → nodes where its probe failed, and handler → isolation, where all agree."""
    broken: dict[str, list[str]] = defaultdict(list)
    levels: dict[str, set[str]] = defaultdict(set)
    for profile in profiles:
        handler, conditions = profile.spec.handler, profile.status.conditions
        if any(each.type == WORKING and each.status == "False" for each in conditions):
            broken[handler].append(profile.spec.node_name)
        if profile.status.isolation:
            levels[handler].add(profile.status.isolation)
    agreed = {handler: found.pop() for handler, found in levels.items() if len(found) == 1}
    return {handler: tuple(names) for handler, names in broken.items()}, agreed


def _handler_cell(is_listed: bool, profile: RuntimeProfile | None) -> HandlerCell:
    if profile is None:
        return HandlerCell("listed") if is_listed else HandlerCell()
    for condition in profile.status.conditions:
        if condition.type == WORKING and condition.status == "False":
            return HandlerCell("broken", shortened(condition.message or condition.reason))
    program = profile.status.program
    version = "" if program is None else f"{program.name} {program.version}".strip()
    version = shortened(version)
    if is_true(profile.status.conditions, WORKING):
        return HandlerCell("working", version)
    return HandlerCell("listed", version) if is_listed else HandlerCell("", version)


def _distinct(profiles: Sequence[RuntimeProfile]) -> tuple[RuntimeProfile, ...]:
    """Return one profile of each handler and finding: nodes that agree share a column."""
    probed = (profile for profile in profiles if profile.status.features)
    return tuple(group[0] for groups in alike(probed).values() for group in groups)


def _sections(columns: Sequence[RuntimeProfile]) -> tuple[FeatureSection, ...]:
    findings = [{each.name: each for each in column.status.features} for column in columns]
    sections = []
    for area in FeatureArea:
        rows = tuple(
            FeatureRow(
                feature,
                tuple(own.get(feature.name, ProfileFeature(name=feature.name)) for own in findings),
            )
            for feature in FEATURES.values()
            if feature.area is area and any(feature.name in own for own in findings)
        )
        if rows:
            sections.append(FeatureSection(area, rows))
    return tuple(sections)
