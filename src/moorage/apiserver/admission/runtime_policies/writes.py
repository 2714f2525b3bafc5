"""RuntimePolicyWrites plugin: policies that cannot be understood are refused.

The definitions check shapes; needs and selectors have rules of their own. What is legal but has no
effect, or refuses every pod, is warned of: a class may be created later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from moorage.api.errors import FieldError, InvalidError
from moorage.api.runtime_group import GROUP
from moorage.api.runtime_policies import ClusterRuntimePolicySpec
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.registry.request import Attributes
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.handler import LEGACY
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimeclass.needs import NeedsError, needs_of
from moorage.runtimeclass.policies import OTHERS

_SHOWN = 10


class RuntimePolicyWrites:
    """Checks RuntimePolicies and ClusterRuntimePolicies. `index` returns the present classes."""

    name = "RuntimePolicyWrites"
    scope = Scope.of(
        [f"runtimepolicies.{GROUP}", f"clusterruntimepolicies.{GROUP}"], [CREATE, UPDATE]
    )
    mutate = None

    def __init__(self, index: Callable[[], ClassIndex]) -> None:
        self._index = index

    def validate(self, attributes: Attributes) -> None:
        """Check a policy. Raises InvalidError for needs or selectors that have no meaning."""
        obj, old = attributes.obj, attributes.old
        assert obj is not None
        if old is not None and old.get("spec") == obj.get("spec"):
            return
        spec = msgspec.convert(obj.get("spec") or {}, ClusterRuntimePolicySpec)
        if errors := [*_errors(spec)]:
            kind = attributes.kind
            raise InvalidError.of(kind.name, attributes.name, errors, group=kind.group)
        for text in _warnings(spec, self._index()):
            attributes.request.warn(text)


def _errors(spec: ClusterRuntimePolicySpec) -> Iterator[FieldError]:
    for index, word in enumerate(spec.needs):
        try:
            needs_of([word])
        except NeedsError as error:
            yield FieldError.invalid(f"spec.needs[{index}]", word, str(error))
            return
    try:
        needs_of(spec.needs)
    except NeedsError as error:
        yield FieldError.invalid("spec.needs", list(spec.needs), str(error))
    if spec.namespace_selector is not None:
        yield from label_selector_errors(spec.namespace_selector, "spec.namespaceSelector")


def _warnings(spec: ClusterRuntimePolicySpec, index: ClassIndex) -> Iterator[str]:
    allowed = spec.allowed_classes
    if allowed is not None and not allowed:
        yield "spec.allowedClasses: no class is allowed, so every new pod is refused"
    named = [("spec.allowedClasses", name) for name in allowed or () if name != LEGACY]
    named += [("spec.checks", name) for name in spec.checks if name != OTHERS]
    default = spec.default_class_name
    if default is not None:
        named.insert(0, ("spec.defaultClassName", default))
    missing = [(field, name) for field, name in named if index.find(name) is None]
    for field, name in missing[:_SHOWN]:
        yield f"{field}: RuntimeClass {name} does not exist"
    if default is not None and index.find(default) and default not in index.offers():
        yield f"spec.defaultClassName: {default} is a temporary class; no pod is given it"
    floor = LEVELS.get(spec.minimum_isolation or "")
    offer = None if default is None else index.find(default)
    if floor is not None and offer is not None:
        level = offer.isolation
        if level is None or level < floor:
            shown = "unknown" if level is None else level.label
            yield (
                f"spec.defaultClassName: the isolation of {default} is {shown}, below "
                f"spec.minimumIsolation {floor.label}"
            )
