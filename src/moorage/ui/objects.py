"""Objects as the page reads them: the few fields that it shows, so that many pods cost little."""

from __future__ import annotations

from moorage.api.meta import Object
from moorage.client.resources import PODS, read_as


class PodRowMeta(Object, frozen=True):
    name: str = ""
    namespace: str = ""


class PodRowSpec(Object, frozen=True):
    node_name: str = ""
    runtime_class_name: str | None = None


class PodRowStatus(Object, frozen=True):
    phase: str = ""
    reason: str = ""


class PodRow(Object, frozen=True):
    """A pod in a list."""

    metadata: PodRowMeta = PodRowMeta()
    spec: PodRowSpec = PodRowSpec()
    status: PodRowStatus = PodRowStatus()


POD_ROWS = read_as(PODS, PodRow)
