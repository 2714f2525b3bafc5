"""Metric families of flow control. Source: apiserver `util/flowcontrol/metrics`, whose names and
meanings these are."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.apiserver.flow_control.control import FlowControl
from moorage.wire.metrics import Counter, Family, Gauge

_PREFIX = "apiserver_flowcontrol_"
_LEVEL = ("priority_level",)
_FLOW = ("priority_level", "flow_schema")


def flow_control_families(control: FlowControl) -> Iterator[Family]:
    """Yield the families, with what is true now."""
    dispatched = Counter(
        f"{_PREFIX}dispatched_requests_total",
        "Number of requests executed by API Priority and Fairness subsystem",
        _FLOW,
    )
    rejected = Counter(
        f"{_PREFIX}rejected_requests_total",
        "Number of requests rejected by API Priority and Fairness subsystem",
        (*_FLOW, "reason"),
    )
    waiting = Gauge(
        f"{_PREFIX}current_inqueue_requests",
        "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
        _FLOW,
    )
    executing = Gauge(
        f"{_PREFIX}current_executing_requests",
        "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in "
        "the API Priority and Fairness subsystem",
        _FLOW,
    )
    for flow in control.flows():
        values = (flow.level.name, flow.schema.name)
        dispatched.increment(values, flow.dispatched)
        waiting.increment(values, flow.waiting)
        executing.increment(values, flow.executing)
        for reason, count in flow.rejected.items():
            rejected.increment((*values, reason), count)
    yield from (dispatched, rejected, waiting, executing)
    yield from _limits(control)


def _limits(control: FlowControl) -> Iterator[Family]:
    nominal = Gauge(
        f"{_PREFIX}nominal_limit_seats",
        "Nominal number of execution seats configured for each priority level",
        _LEVEL,
    )
    lower = Gauge(
        f"{_PREFIX}lower_limit_seats",
        "Configured lower bound on number of execution seats available to each priority level",
        _LEVEL,
    )
    upper = Gauge(
        f"{_PREFIX}upper_limit_seats",
        "Configured upper bound on number of execution seats available to each priority level",
        _LEVEL,
    )
    for level in control.pool.levels.values():
        nominal.set(level.nominal, priority_level=level.name)
        lower.set(level.lower, priority_level=level.name)
        upper.set(level.upper, priority_level=level.name)
    yield from (nominal, lower, upper)
