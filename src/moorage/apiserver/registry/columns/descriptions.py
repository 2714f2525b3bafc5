"""Column descriptions, from the API's documentation.

Most columns show one field of the API and are described by that field's documentation, which is
published and compiled into a file when Moorage is built; a column's table names the field.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from moorage.apiserver.registry.kind import Column
from moorage.apiserver.registry.schema.generated_file import read_generated

BUNDLE = "generated/descriptions.json"


def describe(column: Column) -> str:
    """Return the column's description as sent to clients.

    Raises FileNotFoundError with the command to run when the package was not built, and KeyError
    for a field unknown to the build.
    """
    if not column.documented_by:
        return column.description
    return _load_descriptions()[column.documented_by]


@lru_cache(maxsize=1)
def _load_descriptions() -> dict[str, str]:
    packed = read_generated(__package__, BUNDLE)
    return msgspec.json.decode(packed, type=dict[str, str])
