"""Who provides volumes, and with which parameters: StorageClasses and VolumeAttributesClasses.

Source: storage validation of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError

_MOST_PARAMETERS = 512
_MOST_BYTES = 256 * 1024


def provisioner_errors(provisioner: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a provisioner or driver."""
    if not provisioner:
        yield FieldError.required(path)
        return
    for detail in names.qualified_name_errors(provisioner.lower()):
        yield FieldError.invalid(path, provisioner.lower(), detail)


def parameter_errors(parameters: dict[str, str], path: str) -> Iterator[FieldError]:
    """Validate the number and the size of parameters."""
    if len(parameters) > _MOST_PARAMETERS:
        yield FieldError.too_long(path, _MOST_PARAMETERS)
        return
    if "" in parameters:
        yield FieldError.invalid(path, "", "field can not be empty.")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    if size > _MOST_BYTES:
        yield FieldError.too_long(path, _MOST_BYTES)
