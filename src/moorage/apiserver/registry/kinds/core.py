"""Small kinds of the core group: Namespaces, ConfigMaps, Secrets, ServiceAccounts, PodTemplates."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE, label_text
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, containers_of, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    Comparison,
    each,
    immutable,
    in_turn,
    update,
    validator,
)
from moorage.apiserver.registry.defaults import default_pod_template
from moorage.apiserver.registry.kind import (
    ALL_VERBS,
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep, keep_spec, keep_status, put
from moorage.apiserver.registry.validation.metadata import key_complaints
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.warnings import spec_warnings

MAX_DATA_BYTES = 1024 * 1024
_NAME_LABEL = "kubernetes.io/metadata.name"
_FINALIZER = "kubernetes"
_STANDARD = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_CONFIG_MAP = "io.k8s.api.core.v1.ConfigMap"
_SECRET = "io.k8s.api.core.v1.Secret"
_TOKEN_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_ENFORCED = "kubernetes.io/enforce-mountable-secrets"


def unchanged_if_immutable(*fields: str) -> Comparison:
    """Return the comparison that keeps `immutable` and these fields where it is set."""

    def compare(new: Obj, old: Obj) -> Iterator[FieldError]:
        if not old.get("immutable"):
            return
        why = "field is immutable when `immutable` is set"
        if not new.get("immutable"):
            yield FieldError.forbidden("immutable", why)
        for field in fields:
            if new.get(field) != old.get(field):
                yield FieldError.forbidden(field, why)

    return compare


def key_errors(key: str, path: str) -> list[FieldError]:
    return [FieldError.invalid(path, key, detail) for detail in names.config_key_errors(key)]


def decoded_size(values: Iterable[str]) -> int:
    return sum(len(base64.b64decode(value)) for value in values)


_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def default_namespace(namespace: Obj) -> None:
    """Set the API defaults of a Namespace."""
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**metadata.get("labels", {}), _NAME_LABEL: metadata["name"]}
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def prepare_namespace_create(namespace: Obj) -> None:
    """Reset the fields of a new Namespace that clients may not set."""
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace.setdefault("spec", {}).setdefault("finalizers", [])
    if _FINALIZER not in finalizers:
        finalizers.append(_FINALIZER)
    # A generated name is known only now.
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), _NAME_LABEL: metadata.get("name", "")}


def prepare_namespace_update(new: Obj, old: Obj) -> None:
    """Keep the fields of a Namespace that an update may not change."""
    put(new.setdefault("spec", {}), "finalizers", old.get("spec", {}).get("finalizers"))
    keep_status(new, old)


def _finalizer_errors(finalizer: str, path: str) -> Iterator[FieldError]:
    complaints = key_complaints(finalizer)
    for complaint in complaints:
        yield FieldError.invalid(path, finalizer, complaint)
    if not complaints and "/" not in finalizer and finalizer not in _STANDARD:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield FieldError.invalid(path, finalizer, detail)


validate_namespace = validator(("spec.finalizers", each(_finalizer_errors)))
validate_namespace_update = update(validate_namespace)


def _hold_namespace(namespace: Obj) -> None:
    namespace.setdefault("status", {})["phase"] = "Terminating"


def _is_namespace_held(namespace: Obj) -> bool:
    return bool(namespace.get("spec", {}).get("finalizers"))


NAMESPACE = Kind(
    name="Namespace",
    plural="namespaces",
    served=(Served("", "v1", "io.k8s.api.core.v1.Namespace"),),
    is_namespaced=False,
    short_names=("ns",),
    verbs=_NO_COLLECTION_DELETE,
    strategy=Strategy(
        default=default_namespace,
        prepare_create=prepare_namespace_create,
        prepare_update=prepare_namespace_update,
        validate=validate_namespace,
        validate_update=validate_namespace_update,
        parts={
            "status": PartRules(keep_spec, validate_namespace_update),
            # The specification has nothing but the finalizers.
            "finalize": PartRules(keep_status, validate_namespace_update),
        },
        name_errors=names.dns_label_errors,
        returns_deleted=True,
        mark_deleted=_hold_namespace,
        is_held=_is_namespace_held,
    ),
    printer=printer(
        NAME,
        column("Status", "status.phase", description="The status of the namespace"),
        AGE,
    ),
    selectable=(SelectableField("status.phase", ("status", "phase")),),
    subresources={**status_subresource(), "finalize": Subresource(verbs=("update",))},
)


def validate_config_map(config_map: Obj) -> list[FieldError]:
    """Return the errors of a new ConfigMap."""
    data, binary = config_map.get("data", {}), config_map.get("binaryData", {})
    errors: list[FieldError] = []
    for key in data:
        errors += key_errors(key, f"data[{key}]")
        if key in binary:
            errors.append(
                FieldError.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            )
    for key in binary:
        errors += key_errors(key, f"binaryData[{key}]")
    size = sum(len(value.encode()) for value in data.values()) + decoded_size(binary.values())
    if size > MAX_DATA_BYTES:
        errors.append(FieldError.too_long("[]", MAX_DATA_BYTES))
    return errors


def _keys(config_map: Obj) -> int:
    return len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())


CONFIG_MAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    served=(Served("", "v1", _CONFIG_MAP),),
    short_names=("cm",),
    strategy=Strategy(
        validate=validate_config_map,
        validate_update=update(
            validate_config_map, before=unchanged_if_immutable("data", "binaryData")
        ),
    ),
    printer=printer(NAME, column("Data", _keys, documented_by=f"{_CONFIG_MAP}.data"), AGE),
)

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
    served=(Served("", "v1", _SECRET),),
    strategy=Strategy(
        default=default_secret,
        prepare_update=prepare_secret_update,
        validate=validate_secret,
        validate_update=update(validate_secret, before=_unchanged),
    ),
    printer=printer(
        NAME,
        column("Type", "type", of=_SECRET),
        column("Data", "data", of=_SECRET, absent=0, show=len),
        AGE,
    ),
    selectable=(SelectableField("type", ("type",)),),
)


def warn_service_account(account: Obj, old: Obj | None) -> list[str]:
    annotations = account["metadata"].get("annotations", {})
    was = ((old or {}).get("metadata") or {}).get("annotations", {})
    if _ENFORCED in annotations and _ENFORCED not in was:
        return [
            f"metadata.annotations[{_ENFORCED}]: deprecated in v1.32+; prefer separate namespaces "
            "to isolate access to mounted secrets"
        ]
    return []


SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    served=(Served("", "v1", "io.k8s.api.core.v1.ServiceAccount"),),
    short_names=("sa",),
    strategy=Strategy(
        warn=warn_service_account,
        returns_deleted=True,
    ),
    printer=printer(NAME, AGE),
    subresources={
        "token": Subresource(
            verbs=("create",),
            group="authentication.k8s.io",
            version="v1",
            kind="TokenRequest",
            type="io.k8s.api.authentication.v1.TokenRequest",
        )
    },
)

validate_pod_template = validator(("template", template_errors))


def warn_about_pod_template(pod_template: Obj, old: Obj | None) -> list[str]:
    """Return the warnings of a template that is new or changed."""
    template = pod_template["template"]
    if old is not None and old.get("template") == template:
        return []
    return spec_warnings(template.get("spec", {}), "template.spec")


def get_template(pod_template: Obj) -> object:
    """Return the template, which the generation of a PodTemplate counts."""
    return pod_template.get("template")


POD_TEMPLATE = Kind(
    name="PodTemplate",
    plural="podtemplates",
    served=(Served("", "v1", "io.k8s.api.core.v1.PodTemplate"),),
    strategy=Strategy(
        default=defaults(("template", default_pod_template)),
        validate=validate_pod_template,
        validate_update=update(validate_pod_template),
        warn=warn_about_pod_template,
        spec_of=get_template,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        *containers_of("template", priority=0),
        column(
            "Pod Labels",
            "template.metadata.labels",
            absent=NONE,
            show=label_text,
            description="The labels for the pod template.",
        ),
    ),
)
