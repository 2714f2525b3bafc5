"""API group runtime.moorage.dev: its name, its labels and annotations, its smaller kinds.

Objects of Kubernetes' own kinds carry these, so that everything works through public APIs alone.
"""

from __future__ import annotations

from moorage.api.meta import Condition, Object, ObjectMeta, Raw
from moorage.api.pods import Toleration

# RuntimeClass: a name for pods, its handler, overhead and scheduling rules.
#
# Source: node.k8s.io/v1, KEP-585 (class), KEP-688 (overhead).


class Overhead(Object, frozen=True):
    pod_fixed: dict[str, str] = {}


class Scheduling(Object, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


# RuntimeClassQuotas: how many pods of a class a namespace may have, and what they may request.
#
# Overhead is counted: a sandbox takes it from the node like any container.

ALL_CLASSES = "*"
"""Class name of a quota for all pods of the namespace together, those without a class too."""


class RuntimeClassQuotaSpec(Object, frozen=True):
    """`hard` has the keys of a ResourceQuota: pods, requests.cpu, limits.memory and kin.

    `class_name` is a class, `legacy` for pods without one, or `*`.
    """

    class_name: str = ""
    hard: dict[str, int | str] = {}


class RuntimeClassQuotaStatus(Object, frozen=True):
    hard: dict[str, int | str] = {}
    used: dict[str, int | str] = {}


class RuntimeClassQuota(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeClassQuotaSpec = RuntimeClassQuotaSpec()
    status: RuntimeClassQuotaStatus = RuntimeClassQuotaStatus()


# RuntimePolicies: which classes the pods of a namespace, or of many, get and may use.
#
# A RuntimePolicy is for its own namespace; a ClusterRuntimePolicy for the namespaces that its
# selector matches, all without one.

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


# RuntimeProfiles: what a runtime handler of a node was found to support, by running it.
#
# One object for each node and handler, cluster-scoped, named NODE.HANDLER: a handler has no dots,
# so the last part is the handler. Node and handler are in the specification, which never changes;
# what was found is the status.

WORKING = "Working"
"""Condition of a profile: whether a probe sandbox of the handler ran."""

SUPPORTED = "Supported"
UNSUPPORTED = "Unsupported"
UNKNOWN = "Unknown"


def profile_name(node: str, handler: str) -> str:
    """Return the name of the profile of a node's handler."""
    return f"{node}.{handler}"


def node_of_profile(name: str) -> str:
    """Return the node in a profile's name; empty for another name."""
    return name.rpartition(".")[0]


class ProfileFeature(Object, frozen=True):
    """A feature of the vocabulary in `moorage.runtimeclass.features`, and what its probe found.

    `state` is Supported, Unsupported or Unknown; `message` is the evidence, one line.
    """

    name: str = ""
    state: str = UNKNOWN
    message: str = ""


class RuntimeProgram(Object, frozen=True):
    """The program behind a handler: what is known of it, as text; `digest` is `sha256:HEX`."""

    name: str = ""
    version: str = ""
    path: str = ""
    digest: str = ""


class RuntimeProfileSpec(Object, frozen=True):
    node_name: str = ""
    handler: str = ""


class RuntimeProfileStatus(Object, frozen=True):
    """`kernel` is the version that a container sees, `host_kernel` the node's.

    `isolation` is a level of `moorage.runtimeclass.isolation`; empty while unknown. `same_as` is
    the handler of the node that this one is under a second name; empty for one of its own.
    """

    engine: str = ""
    program: RuntimeProgram | None = None
    same_as: str = ""
    kernel: str = ""
    host_kernel: str = ""
    isolation: str = ""
    probed_at: str | None = None
    features: tuple[ProfileFeature, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RuntimeProfile(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeProfileSpec = RuntimeProfileSpec()
    status: RuntimeProfileStatus = RuntimeProfileStatus()


GROUP = "runtime.moorage.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

HANDLER_CONDITION_SUFFIX = f".{GROUP}/Working"
"""End of the type of a node's condition for one handler; what is before it is the handler."""

MANAGED_LABEL = f"{GROUP}/managed"
"""Label of objects that our controllers created and may change; its value is `MANAGED`."""
MANAGED = "true"

ISOLATION_LABEL = f"{GROUP}/isolation"
"""Label of a RuntimeClass: its isolation level, as `moorage.runtimeclass.isolation` spells it."""

CHECK_ANNOTATION = f"{GROUP}/check"
"""Annotation of a RuntimeClass: `Enforce`, `Warn` or `Off` for pods whose demands it lacks."""

NEEDS_ANNOTATION = f"{GROUP}/needs"
"""Annotation of a pod or namespace: what the runtime must offer, such as `isolation=kernel`."""

DEFAULT_CLASS_LABEL = f"{GROUP}/default-class"
"""Label of a pod: `disabled` where it shall get no default class."""

CHOICE_ANNOTATION = f"{GROUP}/class-choice"
"""Annotation of a pod, set at admission: `fitted` or `default`; absent for an explicit class."""

CHOICE_REASON_ANNOTATION = f"{GROUP}/class-choice-reason"
"""Annotation of a pod, set at admission: why it got its class, in a sentence."""

VERSION_OF_ANNOTATION = f"{GROUP}/version-of"
"""Annotation of a RuntimeClass NAME-vN: the class of which it is a version."""

MEASURED_OVERHEAD_ANNOTATION = f"{GROUP}/measured-overhead"
"""Annotation of a RuntimeClass: the measurement that its overhead comes from, in a sentence."""

MEASURED_AT_ANNOTATION = f"{GROUP}/measured-at"
"""Annotation of a RuntimeClass: when its overhead was measured."""

PREVIOUS_OVERHEAD_ANNOTATION = f"{GROUP}/previous-overhead"
"""Annotation of a RuntimeClass whose overhead was changed in place: the one before, as JSON."""

CONFORMANCE_ANNOTATION = f"{GROUP}/conformance"
"""Annotation of a RuntimeClass: the standard classes whose properties were proven, by commas."""

CONFORMANCE_DATE_ANNOTATION = f"{GROUP}/conformance-date"
"""Annotation of a RuntimeClass: when conformance was last tested."""

CONFORMANCE_TESTED_ANNOTATION = f"{GROUP}/conformance-tested"
"""Annotation of a RuntimeClass: digest of what was tested, `sha256:HEX`."""

ENFORCE_LABEL = f"{GROUP}/enforce"
"""Label of a namespace: with `true`, no pod is created in it while the webhook is away."""

ENFORCED_FOR_ANNOTATION = f"{GROUP}/enforced-for"
"""Annotation of a namespace whose label a controller wrote: the policies that it is for."""

PLACING_ANNOTATION = f"{GROUP}/place-by-handler"
"""Annotation of a RuntimeClass: `disabled` where its pods are not placed by its handler."""

HANDLER_GATE = f"{GROUP}/handler"
"""Scheduling gate of pods that wait for a node with the handler of their class."""

HANDLER_AVAILABLE = f"{GROUP}/HandlerAvailable"
"""Condition of a pod: whether a node that it may use has the handler of its class."""

HELD_FOR_ANNOTATION = f"{GROUP}/held-for"
"""Annotation of a pod with our scheduling gate: the features that its node must have."""

PROBE_LABEL = f"{GROUP}/probe"
"""Label of sandboxes, pods and classes of probes; its value is the owner."""

PROBE_CLASS_PREFIX = "moorage-probe-"
"""How the names of classes begin by which agents' probes reach a handler, and of no others."""

PROBE_NAMESPACE = "moorage-probes"
"""Namespace of the pods of agents' probes, which alone may name classes of probes."""

MEASUREMENT_LABEL = f"{GROUP}/overhead-measurement"
"""Label of classes and pods of a measurement of overhead; its value is the run."""


def handler_label(handler: str) -> str:
    """Return the node label that says, with the value `true`, that a handler works there."""
    return f"{GROUP}/{handler}"


def feature_label(handler: str, feature: str) -> str:
    """Return the node label that says, with the value `true`, that a handler has a feature there.

    Handlers are DNS labels of up to 63 characters, so the handler stands in the label's prefix.
    """
    return f"{handler}.{GROUP}/{feature}"


TRIAL_HANDLER = "moorage-trial"
"""Handler under which a new version is tried, for a minute; it is in no report."""


def handler_condition(handler: str) -> str:
    """Return the type of the node condition that says whether a handler works there."""
    return f"{handler}{HANDLER_CONDITION_SUFFIX}"
