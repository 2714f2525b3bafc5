"""Definitions of the custom resources, as the API server takes them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP


def definition_names() -> frozenset[str]:
    """Return the names of all definitions, by the names of their files: nothing is parsed."""
    return frozenset(
        f"{path.name.removesuffix('.yaml')}.{GROUP}"
        for path in files(__package__).iterdir()
        if path.name.endswith(".yaml")
    )


@cache
def definitions() -> tuple[Raw, ...]:
    """Return all CustomResourceDefinitions of the group, by name. Reads the package's files."""
    # Most that import this only wait for the definitions.
    from moorage.api.yaml_values import parse_document

    found: list[Raw] = [
        parse_document(path.read_text()).value
        for path in files(__package__).iterdir()
        if path.name.endswith(".yaml")
    ]
    return tuple(sorted(found, key=lambda definition: str(definition["metadata"]["name"])))
