"""RuntimeClass migration: handlers, classes and policies from what chose a pod's runtime before.

Pure functions: documents in; operations, new objects and findings out. `make_plan` decides over
many texts together; the single transformations serve objects of a live cluster too.
"""

from moorage.runtimeclass.migration.findings import Finding, Severity
from moorage.runtimeclass.migration.outputs import OutputError
from moorage.runtimeclass.migration.plan import Options, Plan, Source, make_plan
from moorage.runtimeclass.migration.pod_annotations import Meaning
from moorage.runtimeclass.migration.renames import RenameError

__all__ = [
    "Finding",
    "Meaning",
    "Options",
    "OutputError",
    "Plan",
    "RenameError",
    "Severity",
    "Source",
    "make_plan",
]
