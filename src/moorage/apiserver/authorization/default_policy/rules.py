"""Policy rules in short notation, for the tables of default roles."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.apiserver.registry.kind import Obj

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
READ_WRITE = (*WRITE[:3], "get", "list", *WRITE[3:], "watch")


def rule(groups: str, resources: str, verbs: Sequence[str] | str, names: str = "") -> Obj:
    """Return a rule. All but a sequence of verbs is blank-separated; `core` is the core group."""
    made: Obj = {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split() if isinstance(verbs, str) else list(verbs),
    }
    if names:
        made["resourceNames"] = names.split()
    return made


def path_rule(paths: str, verbs: str = "get") -> Obj:
    """Return a rule for blank-separated paths that are no resources."""
    return {"nonResourceURLs": paths.split(), "verbs": verbs.split()}


EVENTS = rule("core events.k8s.io", "events", "create patch update")
