"""ConfigMaps, Secrets and service accounts. Source: core validation of Kubernetes 1.36."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj

_MAX_BYTES = 1024 * 1024
_TOKEN_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_ONE_OF_KEYS = {"kubernetes.io/basic-auth": ("username", "password")}


def validate_config_map(config_map: Obj) -> list[FieldError]:
    data, binary = config_map.get("data", {}), config_map.get("binaryData", {})
    errors: list[FieldError] = []
    for key in data:
        errors += _key_errors(key, f"data[{key}]")
        if key in binary:
            errors.append(
                FieldError.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            )
    for key in binary:
        errors += _key_errors(key, f"binaryData[{key}]")
    size = sum(len(value.encode()) for value in data.values()) + _decoded_size(binary.values())
    if size > _MAX_BYTES:
        errors.append(FieldError.too_long("[]", _MAX_BYTES))
    return errors


def validate_config_map_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = immutable_errors(new, old, ("data", "binaryData"))
    return errors + validate_config_map(new)


def validate_secret(secret: Obj) -> list[FieldError]:
    data, kind = secret.get("data", {}), secret.get("type", "")
    errors = [error for key in data for error in _key_errors(key, f"data[{key}]")]
    if _decoded_size(data.values()) > _MAX_BYTES:
        errors.append(FieldError.too_long("data", _MAX_BYTES))
    if kind == _TOKEN_TYPE:
        annotations = secret["metadata"].get("annotations", {})
        if not annotations.get(_ACCOUNT_ANNOTATION):
            path = f"metadata.annotations[{_ACCOUNT_ANNOTATION}]"
            errors.append(FieldError.required(path))
    errors += [
        FieldError.required(f"data[{key}]")
        for key in _REQUIRED_KEYS.get(kind, ())
        if key not in data
    ]
    alternatives = _ONE_OF_KEYS.get(kind, ())
    if alternatives and not any(key in data for key in alternatives):
        errors += [FieldError.required(f"data[{key}]") for key in alternatives]
    return errors


def validate_secret_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: list[FieldError] = []
    if new.get("type") != old.get("type"):
        errors.append(FieldError.invalid("type", new.get("type", ""), "field is immutable"))
    errors += immutable_errors(new, old, ("data",))
    return errors + validate_secret(new)


def immutable_errors(new: Obj, old: Obj, fields: tuple[str, ...]) -> list[FieldError]:
    """An object that said it is immutable stays so."""
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    errors: list[FieldError] = []
    if not new.get("immutable"):
        errors.append(FieldError.forbidden("immutable", why))
    errors += [
        FieldError.forbidden(field, why) for field in fields if new.get(field) != old.get(field)
    ]
    return errors


def _key_errors(key: str, path: str) -> list[FieldError]:
    return [FieldError.invalid(path, key, each) for each in names.config_key_errors(key)]


def _decoded_size(values: Iterable[str]) -> int:
    return sum(len(base64.b64decode(value)) for value in values)
