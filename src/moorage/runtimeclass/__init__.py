"""RuntimeClass core: the effects of a class on a pod.

Pure functions on plain values: no I/O, no clock, no asyncio. The API server admits pods with them,
the scheduler and the node agent resolve handlers with them, a command line can run them offline.
"""

from moorage.runtimeclass.admission import AdmissionRefusal, PodFields, admit, check_admitted
from moorage.runtimeclass.overhead import pod_limits, pod_requests
from moorage.runtimeclass.validation import (
    LEGACY,
    ClassLookup,
    ClassMissing,
    class_errors,
    class_update_errors,
    class_warnings,
    resolve_handler,
)

__all__ = [
    "LEGACY",
    "AdmissionRefusal",
    "ClassLookup",
    "ClassMissing",
    "PodFields",
    "admit",
    "check_admitted",
    "class_errors",
    "class_update_errors",
    "class_warnings",
    "pod_limits",
    "pod_requests",
    "resolve_handler",
]
