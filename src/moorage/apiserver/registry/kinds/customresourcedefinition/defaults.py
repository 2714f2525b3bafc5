"""Defaults of CustomResourceDefinitions, as the published API sets them at decoding."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj

_WEBHOOK_PORT = 443


def default_definition(definition: Obj) -> None:
    """Set the API defaults of a CustomResourceDefinition."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = conversion.get("webhook", {}).get("clientConfig", {}).get("service")
    if service is not None:
        service.setdefault("port", _WEBHOOK_PORT)
    add_storage_version(definition, only_if_none=True)


def add_storage_version(definition: Obj, *, only_if_none: bool = False) -> None:
    """Record in the status that objects are stored in the storage version."""
    stored = definition.get("status", {}).get("storedVersions", [])
    storage = next(
        (version for version in definition["spec"].get("versions", ()) if version.get("storage")),
        None,
    )
    if storage is None or (stored and only_if_none) or storage.get("name", "") in stored:
        return
    # An update has its status from the old object, which must not change.
    definition["status"] = {
        **definition.get("status", {}), "storedVersions": [*stored, storage.get("name", "")]
    }  # fmt: skip
