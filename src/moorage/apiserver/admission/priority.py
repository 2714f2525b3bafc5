"""Priority plugin: resolves a pod's priority class to its value, or the cluster default.

Source: apiserver plugin Priority, KEP-268.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moorage.api.errors import ForbiddenError
from moorage.api.pods import PriorityClass
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.request import Attributes

_DEFAULT_PRIORITY = 0
_PREEMPT_LOWER = "PreemptLowerPriority"


class PriorityAdmission:
    """Sets the priority and preemption policy of new pods; refuses a second default class.

    `find` returns a priority class by name, or None; `every` returns all of them.
    """

    name = "Priority"
    scope = Scope.of(["pods", "priorityclasses.scheduling.k8s.io"], [CREATE, UPDATE])

    def __init__(
        self,
        find: Callable[[str], PriorityClass | None],
        every: Callable[[], Iterable[PriorityClass]],
    ) -> None:
        self._find = find
        self._every = every
        self.mutate = self._admit
        self.validate = self._check

    def _admit(self, attributes: Attributes) -> None:
        if attributes.kind.resource != "pods" or attributes.operation != CREATE:
            return
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        chosen = self._class_for(attributes, spec.get("priorityClassName", ""))
        priority = _DEFAULT_PRIORITY if chosen is None else chosen.value
        policy = (chosen.preemption_policy if chosen else None) or _PREEMPT_LOWER
        if chosen is not None:
            spec["priorityClassName"] = chosen.metadata.name
        if spec.setdefault("priority", priority) != priority:
            raise refused(
                attributes,
                f"the integer value of priority ({spec['priority']}) must not be provided in pod "
                f"spec; priority admission controller computed {priority} from the given "
                "PriorityClass name",
            )
        if spec.setdefault("preemptionPolicy", policy) != policy:
            raise refused(
                attributes,
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
                f"provided in pod spec; priority admission controller computed {policy} from the "
                "given PriorityClass name",
            )

    def _class_for(self, attributes: Attributes, class_name: str) -> PriorityClass | None:
        if class_name:
            priority_class = self._find(class_name)
            if priority_class is None:
                raise refused(attributes, f"no PriorityClass with name {class_name} was found")
            return priority_class
        defaults = [candidate for candidate in self._every() if candidate.global_default]
        return min(defaults, key=lambda candidate: candidate.value, default=None)

    def _check(self, attributes: Attributes) -> None:
        """Check that a default class is the only one. Raises ForbiddenError."""
        if attributes.kind.resource == "pods" or attributes.obj is None:
            return
        if not attributes.obj.get("globalDefault"):
            return
        for other in self._every():
            if other.global_default and other.metadata.name != attributes.name:
                raise ForbiddenError.of(
                    attributes.kind.plural,
                    attributes.name,
                    f"PriorityClass {other.metadata.name} is already marked as default. Only one "
                    "default can exist",
                    group=attributes.kind.group,
                )
