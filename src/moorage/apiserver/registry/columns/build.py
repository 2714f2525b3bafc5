"""Column description build step: extracts them from the API's documentation.

Run by the build hook, never by a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.columns.table import BUNDLE
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.schema.definitions import Definition, load_definitions


def generate_descriptions(kinds: Iterable[Kind], package: Path) -> None:
    """Write the documentation of every field that the kinds' columns name.

    `package` is the directory of `moorage.apiserver.registry.columns`. Raises KeyError for a
    field that the definitions lack.
    """
    definitions = load_definitions()
    printers = [CREATED_AT, *(kind.printer for kind in kinds if kind.printer is not None)]
    fields = {column.documented_by for printer in printers for column in printer.columns} - {""}
    texts = {field: _documentation(definitions, field) for field in sorted(fields)}
    target = package / BUNDLE
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(msgspec.json.encode(texts))


def _documentation(definitions: Mapping[str, Definition], field: str) -> str:
    type_name, _, name = field.rpartition(".")
    text: str = definitions[type_name]["properties"][name]["description"]
    return text
