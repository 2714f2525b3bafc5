"""DefaultTolerationSeconds plugin: pods tolerate not-ready and unreachable nodes for 300 s.

Source: apiserver plugin DefaultTolerationSeconds.
"""

from __future__ import annotations

from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_SECONDS = 300


class DefaultTolerationSeconds:
    """Adds both NoExecute tolerations to pods, unless a toleration of the pod covers them.

    To changed pods too: an update whose author leaves them out does not remove them.
    """

    name = "DefaultTolerationSeconds"
    scope = Scope.of(["pods"], [CREATE, UPDATE])
    validate = None

    def __init__(self) -> None:
        self.mutate = self._admit

    def _admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        own = spec.get("tolerations", [])
        missing = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
            for key in (NOT_READY, UNREACHABLE)
            if not any(_answers(toleration, key) for toleration in own)
        ]
        if missing:
            spec["tolerations"] = [*own, *missing]


def _answers(toleration: Obj, key: str) -> bool:
    """Return whether a toleration already covers the NoExecute taint `key`."""
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in (
        "",
        "NoExecute",
    )
