"""Volume validation: each volume has exactly one well-formed source.

Volume types that need a storage system are validated for structure only. Source: core validation
`ValidateVolumes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj
from moorage.registry.validation.containers import (
    field_ref_errors,
    local_path_errors,
    resource_ref_errors,
)

_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File",
                    "FileOrCreate", "Socket")  # fmt: skip
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MODE_MESSAGE = "must be a number between 0 and 0777 (octal), both inclusive"
_DOWNWARD_FIELDS = frozenset({
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
    "metadata.uid",
})  # fmt: skip
_LEAST_TOKEN_SECONDS = 600
_MOST_TOKEN_SECONDS = 2**32


def volume_errors(volumes: list[Obj], path: str) -> tuple[dict[str, Obj], list[FieldError]]:
    """Validate the volumes. Returns the volumes by name, and the errors."""
    by_name: dict[str, Obj] = {}
    errors: list[FieldError] = []
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        own_errors = _source_errors(volume, at)
        name = volume.get("name", "")
        if not name:
            own_errors.append(FieldError.required(f"{at}.name"))
        else:
            own_errors += [
                FieldError.invalid(f"{at}.name", name, detail)
                for detail in names.dns_label_errors(name)
            ]
            if name in by_name:
                own_errors.append(FieldError.duplicate(f"{at}.name", name))
        if not own_errors:
            by_name[name] = volume
        errors += own_errors
    return by_name, errors


def _source_errors(volume: Obj, path: str) -> list[FieldError]:
    sources = [field for field in volume if field != "name"]
    if not sources:
        return [FieldError.required(path, "must specify a volume type")]
    errors: list[FieldError] = []
    for index, field in enumerate(sources):
        at = f"{path}.{field}"
        if index > 0:
            errors.append(FieldError.forbidden(at, "may not specify more than 1 volume type"))
        elif field in _CHECKS:
            errors += _CHECKS[field](volume[field], at)
    return errors


def _empty_dir_errors(source: Obj, path: str) -> list[FieldError]:
    size = source.get("sizeLimit")
    if size is not None and quantity.parse(size).nano < 0:
        return [
            FieldError.forbidden(
                f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"
            )
        ]
    return []


def _host_path_errors(source: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    value = source.get("path", "")
    if not value:
        errors.append(FieldError.required(f"{path}.path"))
    elif ".." in value.split("/"):
        errors.append(FieldError.invalid(f"{path}.path", value, "must not contain '..'"))
    kind = source.get("type", "")
    if kind not in _HOST_PATH_TYPES:
        errors.append(FieldError.not_supported(f"{path}.type", kind, sorted(_HOST_PATH_TYPES)))
    return errors


def _secret_errors(source: Obj, path: str) -> list[FieldError]:
    errors = [] if source.get("secretName") else [FieldError.required(f"{path}.secretName")]
    return errors + _mode_errors(source, path) + _item_errors(source, path)


def _config_map_errors(source: Obj, path: str) -> list[FieldError]:
    errors = [] if source.get("name") else [FieldError.required(f"{path}.name")]
    return errors + _mode_errors(source, path) + _item_errors(source, path)


def _mode_errors(source: Obj, path: str, field: str = "defaultMode") -> list[FieldError]:
    mode = source.get(field)
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [FieldError.invalid(f"{path}.{field}", mode, _MODE_MESSAGE)]


def _item_errors(source: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, item in enumerate(source.get("items", ())):
        at = f"{path}.items[{index}]"
        if not item.get("key"):
            errors.append(FieldError.required(f"{at}.key"))
        errors += _file_errors(item, at)
    return errors


def _file_errors(item: Obj, path: str) -> list[FieldError]:
    """Validate the path and mode of one file in a volume."""
    value = item.get("path", "")
    if not value:
        errors = [FieldError.required(f"{path}.path")]
    else:
        errors = local_path_errors(value, f"{path}.path")
        if value.startswith(".."):
            errors.append(FieldError.invalid(f"{path}.path", value, "must not start with '..'"))
    return errors + _mode_errors(item, path, "mode")


def _downward_errors(source: Obj, path: str) -> list[FieldError]:
    errors = _mode_errors(source, path)
    for item in source.get("items", ()):
        # Upstream gives these no index.
        if not item.get("path"):
            errors.append(FieldError.required(f"{path}.path"))
        else:
            errors += _file_errors(item, path)
        if "fieldRef" in item:
            errors += field_ref_errors(item["fieldRef"], f"{path}.fieldRef", _DOWNWARD_FIELDS)
            if "resourceFieldRef" in item:
                errors.append(
                    FieldError.invalid(
                        path, "resource", "fieldRef and resourceFieldRef can not be specified "
                        "simultaneously",
                    )
                )  # fmt: skip
        elif "resourceFieldRef" in item:
            errors += resource_ref_errors(
                item["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=True
            )
        else:
            errors.append(
                FieldError.required(path, "one of fieldRef and resourceFieldRef is required")
            )
    return errors


def _projected_errors(source: Obj, path: str) -> list[FieldError]:
    errors = _mode_errors(source, path)
    seen: set[str] = set()
    for index, entry in enumerate(source.get("sources", ())):
        at = f"{path}.sources[{index}]"
        for number, (field, projection) in enumerate(entry.items()):
            where = f"{at}.{field}"
            if number > 0:
                errors.append(FieldError.forbidden(where, "may not specify more than 1 volume "
                                                   "type per source"))  # fmt: skip
                continue
            check = _PROJECTIONS.get(field)
            if check is not None:
                errors += check(projection, where)
            errors += _conflicting_paths(field, projection, path, seen)
    return errors


def _conflicting_paths(field: str, projection: Obj, path: str, seen: set[str]) -> list[FieldError]:
    """Reject two sources that write the same path; the error shows a source's name, if any."""
    if field == "serviceAccountToken":
        places = [projection.get("path", "")]
    else:
        places = [item.get("path", "") for item in projection.get("items", ())]
    errors: list[FieldError] = []
    for place in places:
        if place and place in seen:
            shown = projection.get("name", place)
            errors.append(FieldError.invalid(path, shown, "conflicting duplicate paths"))
        seen.add(place)
    return errors


def _token_errors(projection: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seconds = projection.get("expirationSeconds", _LEAST_TOKEN_SECONDS)
    if seconds < _LEAST_TOKEN_SECONDS:
        errors.append(
            FieldError.invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration less than 10 minutes",
            )
        )
    elif seconds > _MOST_TOKEN_SECONDS:
        errors.append(
            FieldError.invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            )
        )
    if projection.get("path"):
        errors += _file_errors(projection, path)
    else:
        # Upstream names the volume here, not the source.
        errors.append(FieldError.required(f"{path.partition('.sources[')[0]}.path"))
    return errors


def _named_errors(projection: Obj, path: str) -> list[FieldError]:
    errors = [] if projection.get("name") else [FieldError.required(f"{path}.name")]
    return errors + _item_errors(projection, path)


def _claim_errors(source: Obj, path: str) -> list[FieldError]:
    return [] if source.get("claimName") else [FieldError.required(f"{path}.claimName")]


def _image_errors(source: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not source.get("reference"):
        errors.append(FieldError.required(f"{path}.reference"))
    policy = source.get("pullPolicy", "")
    if policy and policy not in _PULL_POLICIES:
        errors.append(FieldError.not_supported(f"{path}.pullPolicy", policy, _PULL_POLICIES))
    return errors


def _nfs_errors(source: Obj, path: str) -> list[FieldError]:
    errors = [
        FieldError.required(f"{path}.{field}")
        for field in ("server", "path")
        if not source.get(field)
    ]
    if source.get("path") and not source["path"].startswith("/"):
        errors.append(
            FieldError.invalid(f"{path}.path", source["path"], "must be an absolute path")
        )
    return errors


def _csi_errors(source: Obj, path: str) -> list[FieldError]:
    return [] if source.get("driver") else [FieldError.required(f"{path}.driver")]


Check = Callable[[Any, str], list[FieldError]]

_CHECKS: dict[str, Check] = {
    "emptyDir": _empty_dir_errors,
    "hostPath": _host_path_errors,
    "secret": _secret_errors,
    "configMap": _config_map_errors,
    "downwardAPI": _downward_errors,
    "projected": _projected_errors,
    "persistentVolumeClaim": _claim_errors,
    "image": _image_errors,
    "nfs": _nfs_errors,
    "csi": _csi_errors,
}
_PROJECTIONS: dict[str, Check] = {
    "secret": _named_errors,
    "configMap": _named_errors,
    "downwardAPI": _downward_errors,
    "serviceAccountToken": _token_errors,
}
