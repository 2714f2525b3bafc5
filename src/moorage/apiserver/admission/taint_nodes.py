"""TaintNodesByCondition plugin: a new node is tainted not-ready until its agent reports.

Source: apiserver plugin TaintNodesByCondition.
"""

from __future__ import annotations

from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.admission.default_tolerations import NOT_READY
from moorage.apiserver.registry.request import Attributes

_TAINT = {"key": NOT_READY, "effect": "NoSchedule"}


class TaintNewNodes:
    """Adds the not-ready NoSchedule taint to new nodes that do not have it."""

    name = "TaintNodesByCondition"
    scope = Scope.of(["nodes"], [CREATE])
    validate = None

    def __init__(self) -> None:
        self.mutate = self._admit

    def _admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        taints = spec.get("taints", [])
        if not any(_TAINT.items() <= taint.items() for taint in taints):
            spec["taints"] = [*taints, dict(_TAINT)]
