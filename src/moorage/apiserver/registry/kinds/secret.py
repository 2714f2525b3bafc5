"""Secrets. Source: core validation `ValidateSecret`, Kubernetes 1.36."""

from __future__ import annotations

import base64
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, CORE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import (
    Column,
    Kind,
    Obj,
    Printer,
    SelectableField,
    Served,
    Strategy,
)
from moorage.apiserver.registry.preparation import keep
from moorage.apiserver.registry.validation.data import (
    MAX_DATA_BYTES,
    decoded_size,
    immutable_errors,
    key_errors,
)

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


def validate_secret_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a Secret."""
    errors: list[FieldError] = []
    if new.get("type") != old.get("type"):
        errors.append(FieldError.invalid("type", new.get("type", ""), "field is immutable"))
    errors += immutable_errors(new, old, ("data",))
    return errors + validate_secret(new)


def _secret_cells(secret: Obj, now: float) -> list[Any]:
    count = len(secret.get("data") or ())
    return [name_of(secret), secret.get("type", ""), count, age_of(secret, now)]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Type", documented_by=f"{CORE}.Secret.type"),
        Column("Data", documented_by=f"{CORE}.Secret.data"),
        AGE,
    ),
    cells=_secret_cells,
)

SECRET = Kind(
    name="Secret",
    plural="secrets",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Secret"),),
    strategy=Strategy(
        default=default_secret,
        prepare_update=prepare_secret_update,
        validate=validate_secret,
        validate_update=validate_secret_update,
    ),
    printer=_PRINTER,
    selectable=(SelectableField("type", ("type",)),),
)
