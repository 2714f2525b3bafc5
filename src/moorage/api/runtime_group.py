"""API group runtime.moorage.dev: its name, and the labels and annotations of its controllers.

Objects of Kubernetes' own kinds carry these, so that everything works through public APIs alone.
"""

from __future__ import annotations

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
