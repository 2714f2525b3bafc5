"""Usage of nodes and pods: measured when it is read, never kept.

Source: metrics.k8s.io/v1beta1, and the columns that metrics-server prints.
"""

from __future__ import annotations

from typing import Any

from moorage.api import quantity
from moorage.apiserver.registry.columns.cells import name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served

GROUP, VERSION = "metrics.k8s.io", "v1beta1"

_TYPES = "io.k8s.metrics.pkg.apis.metrics.v1beta1"
_RESOURCES = ("cpu", "memory")


def _node_cells(metrics: Obj, now: float) -> list[Any]:
    del now
    return _cells(metrics, [metrics.get("usage", {})])


def _pod_cells(metrics: Obj, now: float) -> list[Any]:
    del now
    return _cells(metrics, [container["usage"] for container in metrics.get("containers", ())])


def _cells(metrics: Obj, usages: list[dict[str, str]]) -> list[Any]:
    total = quantity.to_texts(quantity.add_resources(*usages))
    used = [total.get(resource, "0") for resource in _RESOURCES]
    return [name_of(metrics), *used, metrics.get("window", "0s")]


def _columns() -> tuple[Column, ...]:
    return (
        Column("Name", format="name", description="Name of the resource"),
        *(Column(resource, format="quantity") for resource in _RESOURCES),
        Column("Window", format="duration"),
    )


def _kind(name: str, plural: str, printer: Printer, *, is_namespaced: bool) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        served=(Served(group=GROUP, version=VERSION, type=f"{_TYPES}.{name}"),),
        is_namespaced=is_namespaced,
        verbs=("get", "list"),
        printer=printer,
        is_stored=False,
    )


NODE_METRICS = _kind("NodeMetrics", "nodes", Printer(_columns(), _node_cells), is_namespaced=False)
POD_METRICS = _kind("PodMetrics", "pods", Printer(_columns(), _pod_cells), is_namespaced=True)

METRICS: tuple[Kind, ...] = (NODE_METRICS, POD_METRICS)
