"""Secrets. Source: core validation `ValidateSecret`, Kubernetes 1.36."""

from __future__ import annotations

import base64

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import immutable, in_turn, update
from moorage.apiserver.registry.kind import Kind, Obj, SelectableField, Served, Strategy
from moorage.apiserver.registry.preparation import keep
from moorage.apiserver.registry.validation.data import (
    MAX_DATA_BYTES,
    decoded_size,
    key_errors,
    unchanged_if_immutable,
)

_TYPE = "io.k8s.api.core.v1.Secret"
_TOKEN_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_ONE_OF_KEYS = {"kubernetes.io/basic-auth": ("username", "password")}


def default_secret(secret: Obj) -> None:
    """Set the API defaults of a Secret."""
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def prepare_secret_update(new: Obj, old: Obj) -> None:
    """Keep the type when the update omits it."""
    if not new.get("type"):
        keep(new, old, "type")


def validate_secret(secret: Obj) -> list[FieldError]:
    """Return the errors of a new Secret."""
    data, kind = secret.get("data", {}), secret.get("type", "")
    errors = [error for key in data for error in key_errors(key, f"data[{key}]")]
    if decoded_size(data.values()) > MAX_DATA_BYTES:
        errors.append(FieldError.too_long("data", MAX_DATA_BYTES))
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


_unchanged = in_turn(immutable("type"), unchanged_if_immutable("data"))

SECRET = Kind(
    name="Secret",
    plural="secrets",
    served=(Served(group="", version="v1", type=_TYPE),),
    strategy=Strategy(
        default=default_secret,
        prepare_update=prepare_secret_update,
        validate=validate_secret,
        validate_update=update(validate_secret, before=_unchanged),
    ),
    printer=printer(
        NAME,
        column("Type", "type", of=_TYPE),
        column("Data", "data", of=_TYPE, absent=0, show=len),
        AGE,
    ),
    selectable=(SelectableField("type", ("type",)),),
)
