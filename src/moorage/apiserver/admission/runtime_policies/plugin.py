"""RuntimePolicy plugin: gives pods a class, and refuses those whose class does not do.

Before the RuntimeClass plugin it sets `runtimeClassName` and writes the choice on the pod; after
all changes it checks floor, allow-list and what the pod asks for. The templates of workloads get
the same as warnings, as PodSecurity's do. Pods that exist are not touched by a change of policies;
of a container that is added to one, what it asks for is checked. With neither policies nor profiles
the cost is under 2 µs a pod (bench/hotpaths.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from moorage.api.errors import FieldError, InvalidError
from moorage.api.runtime_group import (
    CHOICE_ANNOTATION,
    CHOICE_REASON_ANNOTATION,
    GROUP,
    NEEDS_ANNOTATION,
    ClusterRuntimePolicySpec,
)
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.admission.runtime_policies.sources import Facts, NamespaceRules
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.runtimeclass.class_choice import (
    CHOICE_ANNOTATIONS,
    Choice,
    ChoiceRefusal,
    choose_class,
)
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import demands
from moorage.runtimeclass.exemptions import is_exempt
from moorage.runtimeclass.isolation import LEVELS
from moorage.runtimeclass.needs import NeedsError, needs_of
from moorage.runtimeclass.pod_review import Objection, review_demands, review_name, review_pod
from moorage.runtimeclass.policies import OTHERS
from moorage.runtimeclass.validation import LEGACY, is_implicit
from moorage.runtimeclass.workloads import TEMPLATES, template_of

# RuntimePolicyWrites plugin: policies that cannot be understood are refused.
#
# The definitions check shapes; needs and selectors have rules of their own. What is legal but has
# no effect, or refuses every pod, is warned of: a class may be created later.

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


_PODS = "pods"
_EPHEMERAL, _STATUS = "ephemeralcontainers", "status"
_MOST_REFUSALS = 10


class RuntimePolicyAdmission:
    """Chooses and checks the classes of pods, by the policies of their namespaces."""

    name = "RuntimePolicy"
    scope = Scope.of([_PODS, *TEMPLATES], [CREATE, UPDATE], ["", _EPHEMERAL, _STATUS])

    def __init__(self, facts: Facts, *, recognizes_choice: bool = False) -> None:
        """`recognizes_choice`: a call may be the second for one pod without being marked so.

        That is a webhook's case (`reinvocationPolicy`).
        """
        self._facts = facts
        self._recognizes_choice = recognizes_choice

    def mutate(self, attributes: Attributes) -> None:
        """Set the class of a new pod. Raises ForbiddenError if there is none for it."""
        if attributes.kind.resource != _PODS:
            return
        pod = attributes.obj
        assert pod is not None
        if attributes.operation == UPDATE:
            # By status too, which may change annotations.
            _keep_choice(pod, attributes.old or {})
            return
        if _is_second(attributes) and _is_as_chosen(pod):
            return
        if self._recognizes_choice and self._is_chosen_again(attributes.namespace, pod):
            return
        _set_annotations(pod, {})
        if not self._is_ruled(attributes.namespace, pod) or _exempt(attributes, pod):
            return
        try:
            choice = self._choice(attributes.namespace, pod)
        except ChoiceRefusal as refusal:
            raise refused(attributes, f"no RuntimeClass for the pod: {refusal}") from refusal
        for warning in choice.warnings:
            attributes.request.warn(warning)
        _apply(choice, pod)

    def validate(self, attributes: Attributes) -> None:
        """Check a pod or template. Raises ForbiddenError for a pod."""
        resource, obj = attributes.kind.resource, attributes.obj
        assert obj is not None
        if resource != _PODS:
            if not attributes.subresource and (template := template_of(resource, obj)):
                self._warn_of_template(attributes, template)
        elif attributes.operation == CREATE:
            if closed := review_name(attributes.namespace, obj["spec"]):
                raise refused(attributes, closed.message)
            if self._facts.has_policies or self._facts.has_profiles:
                self._check(attributes, obj)
        elif attributes.subresource == _EPHEMERAL and self._facts.has_profiles:
            self._check_added(attributes, obj)

    def _is_ruled(self, namespace: str, pod: Obj) -> bool:
        """Return whether a pod may get a class: there are policies, or needs are stated."""
        if self._facts.has_policies:
            return True
        if NEEDS_ANNOTATION in (pod["metadata"].get("annotations") or {}):
            return True
        return NEEDS_ANNOTATION in self._facts.rules(namespace).annotations

    def _is_chosen_again(self, namespace: str, pod: Obj) -> bool:
        """Return whether a pod has the class that it would get without one, and says so.

        A pod's author who writes that beforehand is right.
        """
        annotations = pod["metadata"].get("annotations") or {}
        name = pod["spec"].get("runtimeClassName")
        if not name or CHOICE_ANNOTATION not in annotations or not self._is_ruled(namespace, pod):
            return False
        without = {**pod, "spec": {**pod["spec"], "runtimeClassName": None}}
        try:
            choice = self._choice(namespace, without)
        except ChoiceRefusal:
            return False
        if choice.class_name != name:
            return False
        _set_annotations(pod, choice.annotations)
        return True

    def _choice(self, namespace: str, pod: Obj) -> Choice:
        rules = self._facts.rules(namespace)
        return choose_class(
            pod["metadata"], pod["spec"], rules.annotations, rules.policy, self._facts.index()
        )

    def _check(self, attributes: Attributes, pod: Obj) -> None:
        if _exempt(attributes, pod):
            return
        policy = self._facts.rules(attributes.namespace).policy
        found = review_pod(pod["metadata"], pod["spec"], policy, self._facts.index())
        _settle(attributes, found)

    def _check_added(self, attributes: Attributes, pod: Obj) -> None:
        """Check the ephemeral containers that an update adds."""
        spec, before = pod["spec"], (attributes.old or {}).get("spec", {})
        offer = None
        if not is_implicit(spec.get("runtimeClassName")):
            offer = self._facts.index().find(spec["runtimeClassName"])
        if offer is None or _exempt(attributes, pod):
            return
        count = len(before.get("ephemeralContainers") or ())
        added = [
            demand
            for demand in demands({"ephemeralContainers": spec.get("ephemeralContainers") or []})
            if isinstance(demand.path[2], int) and demand.path[2] >= count
        ]
        policy = self._facts.rules(attributes.namespace).policy
        _settle(attributes, review_demands(offer, spec, added, policy, self._facts.index()))

    def _warn_of_template(self, attributes: Attributes, template: Obj) -> None:
        """Warn of what a workload's pods would be refused for, or warned of."""
        if attributes.old is not None and template == template_of(
            attributes.kind.resource, attributes.old
        ):
            return
        pod = {"metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
        if closed := review_name(attributes.namespace, pod["spec"]):
            attributes.request.warn(f"pods would be refused: {closed.message}")
            return
        is_ruled = self._is_ruled(attributes.namespace, pod)
        if not is_ruled and not self._facts.has_profiles:
            return
        if is_exempt(attributes.namespace, pod["metadata"], pod["spec"]):
            return
        rules = self._facts.rules(attributes.namespace)
        for text in _template_warnings(pod, rules, self._facts):
            attributes.request.warn(text)


def _template_warnings(pod: Obj, rules: NamespaceRules, facts: Facts) -> Iterable[str]:
    index = facts.index()
    try:
        choice = choose_class(pod["metadata"], pod["spec"], rules.annotations, rules.policy, index)
    except (ChoiceRefusal, msgspec.ValidationError, ValueError) as refusal:
        yield f"pods would be refused: {refusal}"
        return
    yield from choice.warnings
    spec = pod["spec"]
    if choice.class_name is not None:
        spec = {**spec, "runtimeClassName": choice.class_name}
    for objection in review_pod(pod["metadata"], spec, rules.policy, index):
        yield (
            f"pods would be refused: {objection.message}"
            if objection.refuses
            else (objection.message)
        )


def _settle(attributes: Attributes, objections: Iterable[Objection]) -> None:
    """Refuse a pod for all that refuses it, or warn. Raises ForbiddenError."""
    refusals = []
    for objection in objections:
        if objection.refuses:
            refusals.append(objection.message)
        else:
            attributes.request.warn(objection.message)
    if refusals:
        more = len(refusals) - _MOST_REFUSALS
        shown = refusals[:_MOST_REFUSALS] + ([f"and {more} more"] if more > 0 else [])
        raise refused(attributes, "; ".join(shown))


def _exempt(attributes: Attributes, pod: Obj) -> bool:
    return is_exempt(
        attributes.namespace, pod["metadata"], pod["spec"], attributes.request.user.groups
    )


def _is_second(attributes: Attributes) -> bool:
    return attributes.reinvocation is not None and attributes.reinvocation.is_second


def _is_as_chosen(pod: Obj) -> bool:
    """Return whether a pod still has the class that the first run chose.

    In the second run its annotations are ours, or a webhook's, which may do anything: the first run
    removed those of the pod's author.
    """
    reason = (pod["metadata"].get("annotations") or {}).get(CHOICE_REASON_ANNOTATION, "")
    name = pod["spec"].get("runtimeClassName")
    return bool(name) and reason.startswith(f"class {name} ")


def _apply(choice: Choice, pod: Obj) -> None:
    if choice.class_name is not None:
        pod["spec"]["runtimeClassName"] = choice.class_name
    if choice.node_selector:
        selector = pod["spec"].get("nodeSelector") or {}
        pod["spec"]["nodeSelector"] = {**selector, **choice.node_selector}
    if choice.annotations:
        _set_annotations(pod, choice.annotations)


def _keep_choice(pod: Obj, old: Obj) -> None:
    """Keep the annotations of the choice as they were when the pod was created."""
    before = (old.get("metadata") or {}).get("annotations") or {}
    _set_annotations(pod, {key: before[key] for key in CHOICE_ANNOTATIONS if key in before})


def _set_annotations(pod: Obj, values: dict[str, Any]) -> None:
    """Set the annotations of the choice to these, and remove the others of its annotations."""
    metadata = pod["metadata"]
    present = metadata.get("annotations")
    if not present and not values:
        return
    if present is None:
        present = metadata["annotations"] = {}
    for key in (CHOICE_ANNOTATION, CHOICE_REASON_ANNOTATION):
        if key in values:
            present[key] = values[key]
        else:
            present.pop(key, None)
    if not present:
        del metadata["annotations"]
