"""Security context validation, for pods and containers.

Source: core validation `validatePodSecurityContext`, `ValidateSecurityContext`.
"""

from __future__ import annotations

import re

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import security_context

_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
_FS_GROUP_POLICIES = ("Always", "OnRootMismatch")
_GROUP_POLICIES = ("Merge", "Strict")
_SELINUX_POLICIES = ("MountOption", "Recursive")
_ID_MESSAGE = "must be between 0 and 2147483647, inclusive"
_MAX_ID = 2**31 - 1
_SYSCTL = re.compile(r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SYSCTL_MESSAGE = (
    "must have at most 253 characters and match regex "
    "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)


def container_security_errors(context: Obj, path: str) -> list[FieldError]:
    """Validate a container's security context."""
    errors = _id_errors(context, path, ("runAsUser", "runAsGroup"))
    errors += _profile_errors(context, path)
    if "procMount" in context and context["procMount"] not in _PROC_MOUNTS:
        errors.append(
            FieldError.not_supported(f"{path}.procMount", context["procMount"], _PROC_MOUNTS)
        )
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            errors.append(
                FieldError.invalid(
                    path, security_context(context),
                    "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
                )
            )  # fmt: skip
        added = (context.get("capabilities") or {}).get("add", ())
        if "CAP_SYS_ADMIN" in added:
            errors.append(
                FieldError.invalid(
                    path, security_context(context),
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "
                    "CAP_SYS_ADMIN",
                )
            )  # fmt: skip
    return errors


def pod_security_errors(context: Obj, path: str, spec: Obj, spec_path: str) -> list[FieldError]:
    """Validate the pod's security context."""
    errors = _id_errors(context, path, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups", ())):
        if not 0 <= group <= _MAX_ID:
            errors.append(
                FieldError.invalid(f"{path}.supplementalGroups[{index}]", group, _ID_MESSAGE)
            )
    errors += _profile_errors(context, path)
    for field, allowed in (
        ("fsGroupChangePolicy", _FS_GROUP_POLICIES),
        ("supplementalGroupsPolicy", _GROUP_POLICIES),
        ("seLinuxChangePolicy", _SELINUX_POLICIES),
    ):
        if field in context and context[field] not in allowed:
            errors.append(FieldError.not_supported(f"{path}.{field}", context[field], allowed))
    if "sysctls" in context:
        errors += _sysctl_errors(context["sysctls"], f"{path}.sysctls", spec, spec_path)
    return errors


def _id_errors(context: Obj, path: str, fields: tuple[str, ...]) -> list[FieldError]:
    return [
        FieldError.invalid(f"{path}.{field}", context[field], _ID_MESSAGE)
        for field in fields
        if field in context and not 0 <= context[field] <= _MAX_ID
    ]


def _profile_errors(context: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field, what in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if field in context:
            errors += _one_profile_errors(context[field], f"{path}.{field}", what)
    return errors


def _one_profile_errors(profile: Obj, path: str, what: str) -> list[FieldError]:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if kind == "Localhost":
        if not local:
            return [
                FieldError.required(
                    f"{path}.localhostProfile", f"must be set when {what} type is Localhost"
                )
            ]
        if local.startswith("/") or ".." in local.split("/"):
            why = "must be a relative path" if local.startswith("/") else "must not contain '..'"
            return [FieldError.invalid(f"{path}.localhostProfile", local, why)]
        return []
    errors: list[FieldError] = []
    if not kind:
        errors.append(FieldError.required(f"{path}.type", "type is required when "
                                          "seccompProfile is set"))  # fmt: skip
    elif kind not in _PROFILE_TYPES:
        errors.append(FieldError.not_supported(f"{path}.type", kind, _PROFILE_TYPES))
    if local is not None:
        errors.append(
            FieldError.invalid(
                f"{path}.localhostProfile", local, "can only be set when type is Localhost"
            )
        )
    return errors


def _sysctl_errors(sysctls: list[Obj], path: str, spec: Obj, spec_path: str) -> list[FieldError]:
    del spec_path
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        at = f"{path}[{index}].name"
        name = sysctl.get("name", "")
        if not name:
            errors.append(FieldError.required(at))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            errors.append(FieldError.invalid(at, name, _SYSCTL_MESSAGE))
        elif name in names:
            errors.append(FieldError.duplicate(at, name))
        elif spec.get("hostNetwork") and name.startswith("net."):
            errors.append(FieldError.invalid(at, name, "may not be specified when 'hostNetwork' "
                                             "is true"))  # fmt: skip
        elif spec.get("hostIPC") and name.startswith(("kernel.shm", "kernel.msg", "kernel.sem")):
            errors.append(FieldError.invalid(at, name, "may not be specified when 'hostIPC' is "
                                             "true"))  # fmt: skip
        names.add(name)
    return errors
