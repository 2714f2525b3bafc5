"""RuntimeClass migration: handlers, classes and policies from what chose a pod's runtime before.

Pure functions: documents in; operations, new objects and findings out. `make_plan` decides over
many texts together; the single transformations serve objects of a live cluster too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.migrate.rules.changes import Finding, RenameError, Severity
    from moorage.migrate.rules.outputs import OutputError
    from moorage.migrate.rules.plan import Options, Plan, Source, make_plan
    from moorage.migrate.rules.pod_security_policies import Meaning

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

# Each name's module, imported at its first use: a node agent reads engines' files by one of them.
_MODULES = {
    "Finding": "changes",
    "Meaning": "pod_security_policies",
    "Options": "plan",
    "OutputError": "outputs",
    "Plan": "plan",
    "RenameError": "changes",
    "Severity": "changes",
    "Source": "plan",
    "make_plan": "plan",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. Raises AttributeError for any other."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
