"""Admission requests: what webhooks and expressions see of a write.

Source: API docs `AdmissionRequest`; apiserver `admission/plugin/cel`, `webhook/request`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from moorage.apiserver.cel.messages import PolicyInput
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes

_GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    ("validatingadmissionpolicies", "validatingadmissionpolicybindings",
     "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
     "validatingwebhookconfigurations", "mutatingwebhookconfigurations")
)  # fmt: skip

_NAMESPACE_METADATA = (
    "name", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip


def is_shown(attributes: Attributes) -> bool:
    """Return whether webhooks and policies see a write.

    They see neither what the server writes itself nor those objects by which they are configured,
    since a configuration must not forbid its own repair.
    """
    kind = attributes.kind
    if attributes.request.is_own:
        return False
    return kind.group != _GROUP or kind.plural not in _EXEMPT


def input_of(attributes: Attributes, served: Served, namespace: Obj | None) -> PolicyInput:
    """Return the variables for a policy that selects a write in a version."""
    return PolicyInput(
        request=request_of(attributes, served),
        object=shown(attributes, served, attributes.obj),
        old_object=shown(attributes, served, attributes.old),
        namespace=None if namespace is None else _namespace(namespace),
    )


P = ParamSpec("P")
R = TypeVar("R")


async def in_version(
    attributes: Attributes,
    served: Served,
    step: Callable[P, R],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Run a step that sees a write in a served version; in a thread where that asks a webhook.

    Raises what the step raises, StatusError for an object that cannot be converted.
    """
    view = attributes.kind.view
    if view is None or not served.is_remote:
        return step(*args, **kwargs)
    return await view.run(step, *args, **kwargs)


def versioned(kind: str, served: Served, obj: Obj | None) -> Obj | None:
    """Return a stored object in a served version, with apiVersion and kind."""
    if obj is None:
        return None
    if served.from_storage is not None:
        obj = served.from_storage(obj)
    return {"apiVersion": served.api_version, "kind": kind, **obj}


def shown(attributes: Attributes, served: Served, obj: Obj | None) -> Obj | None:
    """Return an object of a write as webhooks and policies see it in a version."""
    form = attributes.form
    if form is None or obj is None:
        return versioned(attributes.kind.name, served, obj)
    return {"apiVersion": form.api_version, "kind": form.kind, **form.show(obj)}


def request_of(attributes: Attributes, served: Served) -> dict[str, Any]:
    """Return the AdmissionRequest of a write in a version, without UID, objects and options.

    Texts, lists and maps that are empty are left out, as upstream's `omitempty` does: clients ask
    whether `subResource` is there. `dryRun` and the parts of kinds and resources always are.
    """
    request, kind = attributes.request, attributes.kind
    user, form = request.user, attributes.form
    own = None if form is None else {
        "group": form.group, "version": form.version, "kind": form.kind
    }  # fmt: skip
    user_info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    fields: dict[str, Any] = {
        "kind": own or _kind(kind.name, served),
        "resource": _resource(kind.plural, served),
        "subResource": attributes.subresource,
        "requestKind": own or _kind(kind.name, attributes.served),
        "requestResource": _resource(kind.plural, attributes.served),
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace or _own_namespace(attributes),
        "operation": attributes.operation,
        "userInfo": {key: value for key, value in user_info.items() if value},
        "dryRun": request.is_dry_run,
    }
    return {key: value for key, value in fields.items() if value != ""}


def _own_namespace(attributes: Attributes) -> str:
    """Return the name of a Namespace, which upstream's request for it names as its namespace."""
    kind = attributes.kind
    return attributes.name if (kind.group, kind.plural) == ("", "namespaces") else ""


def _kind(name: str, served: Served) -> dict[str, str]:
    return {"group": served.group, "version": served.version, "kind": name}


def _resource(plural: str, served: Served) -> dict[str, str]:
    return {"group": served.group, "version": served.version, "resource": plural}


def _namespace(namespace: Obj) -> Obj:
    metadata = namespace["metadata"]
    return {
        "metadata": {key: metadata[key] for key in _NAMESPACE_METADATA if key in metadata},
        "spec": namespace.get("spec", {}),
        "status": namespace.get("status", {}),
    }
