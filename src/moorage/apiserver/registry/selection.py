"""Object selection: label and field selectors of lists, watches and collection deletes."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from moorage.api import fields, labels
from moorage.api.errors import BadRequestError
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.stored import Stored, field_reader

_NAME = "metadata.name"
_NAMESPACE = "metadata.namespace"


class Selection(msgspec.Struct, frozen=True):
    """A label and a field selector, compiled for one kind."""

    labels: labels.Selector = labels.EVERYTHING
    name: str | None = None
    checks: tuple[tuple[int, str, bool], ...] = msgspec.field(default=())
    """(index into the selectable fields, value, must be equal)."""
    meta_checks: tuple[tuple[str, str, bool], ...] = msgspec.field(default=())
    fields_of: Callable[[Stored], tuple[str, ...]] = attrgetter("fields")

    @property
    def is_everything(self) -> bool:
        return self.labels.is_everything and not self.checks and not self.meta_checks

    def matches(self, item: Stored) -> bool:
        """Return whether labels and fields of a stored object match."""
        if self.checks:
            values = self.fields_of(item)
            for index, value, is_equal in self.checks:
                if (values[index] == value) is not is_equal:
                    return False
        for label, value, is_equal in self.meta_checks:
            actual = item.name if label == _NAME else item.namespace
            if (actual == value) is not is_equal:
                return False
        return self.labels.is_everything or self.labels.matches(item.labels)


def select(kind: Kind, served: Served, label_text: str, field_text: str) -> Selection:
    """Parse the two query values and return the selection.

    Raises BadRequestError for text that does not parse or a field the kind does not support.
    """
    if not label_text and not field_text:
        return EVERYTHING
    try:
        label_selector = labels.parse(label_text)
        field_selector = fields.parse(field_text)
    except ValueError as error:
        raise BadRequestError(str(error)) from error
    indexes = {field.label: index for index, field in enumerate(kind.selectable)}
    checks: list[tuple[int, str, bool]] = []
    meta_checks: list[tuple[str, str, bool]] = []
    for requirement in field_selector.requirements:
        label = served.field_aliases.get(requirement.field, requirement.field)
        if label in indexes:
            checks.append((indexes[label], requirement.value, requirement.is_equal))
        elif label in (_NAME, _NAMESPACE):
            meta_checks.append((label, requirement.value, requirement.is_equal))
        else:
            raise BadRequestError(_unknown_field(kind, requirement.field))
    return Selection(
        label_selector,
        field_selector.required_value(_NAME),
        tuple(checks),
        tuple(meta_checks),
        field_reader(kind.selectable) if kind.is_custom else attrgetter("fields"),
    )


EVERYTHING = Selection()


def _unknown_field(kind: Kind, label: str) -> str:
    if kind.selectable or kind.is_custom:
        return f"field label not supported: {label}"
    return f'"{label}" is not a known field selector: only "{_NAME}", "{_NAMESPACE}"'
