"""RuntimePolicies: which classes the pods of a namespace, or of many, get and may use.

A RuntimePolicy is for its own namespace; a ClusterRuntimePolicy for the namespaces that its
selector matches, all without one.
"""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, Raw

ENFORCE = "Enforce"
WARN = "Warn"
OFF = "Off"


class RuntimePolicySpec(Object, frozen=True):
    """Rules; what is absent says nothing.

    default_class_name: class of pods that name none and have no needs.
    enforce_default: whether pods may not opt out of it.
    minimum_isolation: floor, a level of `moorage.runtimeclass.isolation`.
    allowed_classes: the only classes that pods may use; None allows all, empty none.
    needs: what pods without a class need of the one they get.
    checks: class → Enforce, Warn or Off; the key `*` is for all other classes.
    """

    default_class_name: str | None = None
    enforce_default: bool = False
    minimum_isolation: str | None = None
    allowed_classes: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    checks: dict[str, str] = {}


class ClusterRuntimePolicySpec(RuntimePolicySpec, frozen=True):
    """The same rules, for namespaces by their labels."""

    namespace_selector: Raw | None = None


class RuntimePolicy(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimePolicySpec = RuntimePolicySpec()


class ClusterRuntimePolicy(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterRuntimePolicySpec = ClusterRuntimePolicySpec()
