"""Resource names: validation for containers, nodes and class overhead.

Source: core validation `ValidateResourceName` and `helper.IsStandardContainerResourceName`.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.quantity import Quantity
from moorage.api.remembered import remembered_by_json

HUGEPAGES_PREFIX = "hugepages-"
_DEFAULT_DOMAIN = "kubernetes.io/"
_REQUESTS_PREFIX = "requests."

_STANDARD_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = _STANDARD_CONTAINER | {
    "requests.cpu", "requests.memory", "requests.ephemeral-storage", "limits.cpu",
    "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services",
    "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims", "storage",
    "requests.storage", "services.nodeports", "services.loadbalancers",
}  # fmt: skip
_STANDARD_QUOTA = _STANDARD - {"storage"}
_WHOLE = frozenset({
    "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
})  # fmt: skip


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def is_quota_hugepages(name: str) -> bool:
    return name.removeprefix(_REQUESTS_PREFIX).startswith(HUGEPAGES_PREFIX)


def is_standard_quota(name: str) -> bool:
    """Return whether a quota may limit a resource of this name, which has no domain."""
    return name in _STANDARD_QUOTA or is_quota_hugepages(name)


def may_overcommit(name: str) -> bool:
    """Return whether limits may exceed requests: not for huge pages and vendors' resources."""
    return is_native(name) and not is_hugepages(name)


def is_native(name: str) -> bool:
    """Return whether a resource is Kubernetes' own: no domain, or one under kubernetes.io."""
    return "/" not in name or _DEFAULT_DOMAIN in name


def is_extended(name: str) -> bool:
    """Return whether a resource is a vendor's, such as `example.com/gpu`."""
    if is_native(name) or name.startswith(_REQUESTS_PREFIX):
        return False
    # It must also be usable with the quota prefix in front.
    return not names.qualified_name_errors(_REQUESTS_PREFIX + name)


def is_standard_container(name: str) -> bool:
    return name in _STANDARD_CONTAINER or is_hugepages(name)


def resource_name_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of any resource name."""
    errors = [
        FieldError.invalid(path, name, complaint) for complaint in names.qualified_name_errors(name)
    ]
    if not errors and "/" not in name and name not in _STANDARD and not is_quota_hugepages(name):
        errors.append(
            FieldError.invalid(path, name, "must be a standard resource type or fully qualified")
        )
    return errors


def container_resource_name_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of a key of a container's requests or limits."""
    errors = resource_name_errors(name, path)
    if names.qualified_name_errors(name):
        return errors
    if "/" not in name:
        if not is_standard_container(name):
            errors.append(
                FieldError.invalid(path, name, "must be a standard resource for containers")
            )
    elif not is_native(name) and not is_extended(name):
        errors.append(
            FieldError.invalid(path, name, "doesn't follow extended resource name standard")
        )
    return errors


def amount_errors(name: str, amount: Quantity, path: str) -> list[FieldError]:
    """Return the errors of a resource amount: sign, and integers where required."""
    errors = quota_amount_errors(name, amount, path)
    if is_hugepages(name):
        page = _page_size(name)
        if page is not None and (amount.nano <= 0 or amount.nano % page.nano):
            shown = str(amount)
            errors.append(
                FieldError.invalid(
                    path, shown, f"{shown} is not positive integer multiple of {name}"
                )
            )
    return errors


def quota_amount_errors(name: str, amount: Quantity, path: str) -> list[FieldError]:
    """Return the errors of a quota's amount: sign, and integers for counts."""
    errors: list[FieldError] = []
    if amount.nano < 0:
        errors.append(FieldError.invalid(path, str(amount), "must be greater than or equal to 0"))
    if (name in _WHOLE or is_extended(name)) and not amount.is_whole:
        errors.append(FieldError.invalid(path, str(amount), "must be an integer"))
    return errors


def _page_size(name: str) -> Quantity | None:
    try:
        return quantity.parse(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError:
        return None


def container_limits_errors(resources: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the errors of `resources.limits`, whose rules also apply to a class's overhead.

    `path` is the parent: errors refer to `PATH.limits[NAME]`, as upstream even for overhead.
    """
    return [] if _are_valid_limits(resources) else _errors_of_limits(resources, path)


@remembered_by_json(1024)
def _are_valid_limits(resources: Mapping[str, str]) -> bool:
    """Return whether limits have no errors. Hot path: a class's overhead, in each of its pods."""
    return not _errors_of_limits(resources, "")


def _errors_of_limits(resources: Mapping[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, text in resources.items():
        at = f"{path}.limits[{name}]"
        errors += container_resource_name_errors(name, at)
        errors += amount_errors(name, quantity.parse(text), at)
    if any(map(is_hugepages, resources)) and not {"cpu", "memory"} & set(resources):
        errors.append(FieldError.forbidden(path, "HugePages require cpu or memory"))
    return errors
