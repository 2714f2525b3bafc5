"""Features of the cluster's runtime handlers, as a matrix read from RuntimeProfiles.

Handlers of nodes that agree share a column; others have one for each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moorage.api.runtime_group import UNKNOWN, WORKING, ProfileFeature, RuntimeProfile
from moorage.cluster.layout import PROBE_RESULTS
from moorage.runtimeclass.features import FEATURES, STATE_WORDS, alike
from moorage.runtimes.probing.cache import ProbeCache, ProbedHandler


class FeatureColumn(msgspec.Struct, frozen=True):
    """A column: its handler, the nodes that it holds for, and feature → what was found.

    `problem` is why the handler's probe fails; empty for one that works or was not probed yet.
    """

    title: str
    handler: str
    nodes: tuple[str, ...]
    isolation: str
    kernel: str
    features: dict[str, ProfileFeature]
    problem: str = ""


def columns(profiles: Iterable[RuntimeProfile]) -> tuple[FeatureColumn, ...]:
    """Return a column for each handler, or for each node of one whose nodes differ."""
    return tuple(
        _column(handler, group, is_alone=len(groups) == 1)
        for handler, groups in alike(profiles).items()
        for group in groups
    )


def rows(found: Sequence[FeatureColumn]) -> list[dict[str, str]]:
    """Return the rows of the matrix: a feature, and its state under each column's title."""
    return [
        {"feature": name}
        | {
            column.title: column.features[name].state if name in column.features else UNKNOWN
            for column in found
        }
        for name in FEATURES
    ]


def short(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row with the words of a table for people: yes, no, unknown."""
    return {key: STATE_WORDS.get(value, value) for key, value in row.items()}


def probed_here(handlers: Iterable[str]) -> tuple[ProbedHandler, ...]:
    """Return the newest result of each handler on this machine, with the probes' output."""
    wanted = set(handlers)
    newest: dict[str, ProbedHandler] = {}
    for probed in ProbeCache(PROBE_RESULTS).all():
        if probed.handler in wanted:
            newest.setdefault(probed.handler, probed)
    return tuple(newest[handler] for handler in sorted(newest))


def problem_of(profile: RuntimeProfile) -> str:
    """Return why a handler's probe fails on a node; empty where it does not."""
    failed = (one.message for one in profile.status.conditions
              if one.type == WORKING and one.status == "False")  # fmt: skip
    return next(failed, "")


def _column(handler: str, group: list[RuntimeProfile], *, is_alone: bool) -> FeatureColumn:
    nodes = tuple(sorted(profile.spec.node_name for profile in group))
    status = group[0].status
    return FeatureColumn(
        title=handler if is_alone else f"{handler} ({', '.join(nodes)})",
        handler=handler,
        nodes=nodes,
        isolation=status.isolation,
        kernel=status.kernel,
        features={feature.name: feature for feature in status.features},
        problem=next(filter(None, map(problem_of, group)), ""),
    )
