"""What a column's description says.

Most columns show one field of the API and are described by that field's documentation, which is
published and compiled into a file when Moorage is built; a column's table names the field.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import msgspec

from moorage.registry.kind import Column

BUNDLE = "generated/descriptions.json"


def describe(column: Column) -> str:
    """The description that clients see.

    Raises FileNotFoundError, saying what to run, when the package was not built, and KeyError for a
    field that the build did not know of.
    """
    if not column.documented_by:
        return column.description
    return _load_descriptions()[column.documented_by]


@lru_cache(maxsize=1)
def _load_descriptions() -> dict[str, str]:
    bundle = resources.files(__package__).joinpath(BUNDLE)
    try:
        packed = bundle.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{bundle} is missing: build the package first (`make venv` does)"
        ) from error
    return msgspec.json.decode(packed, type=dict[str, str])
