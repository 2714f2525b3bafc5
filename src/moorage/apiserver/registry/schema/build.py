"""Schema build: writes the files a server loads; run by the build hook only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.schema.compile import compile_types
from moorage.apiserver.registry.schema.definitions import META, load_definitions

_DOCUMENTS = (
    "DeleteOptions", "Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList",
)  # fmt: skip
"""Types of bodies and answers that are no kind's."""


def generate_schema(kinds: Iterable[Kind], target: Path) -> None:
    """Compile the types of the kinds and of their subresources into `target`.

    Raises KeyError for a type that the definitions lack.
    """
    target.mkdir(exist_ok=True)
    bundle = compile_types(load_definitions(), _roots(kinds))
    (target / "types.msgpack").write_bytes(bundle)


def _roots(kinds: Iterable[Kind]) -> tuple[str, ...]:
    types = dict.fromkeys(f"{META}.{name}" for name in _DOCUMENTS)
    for kind in kinds:
        types |= dict.fromkeys(served.type for served in kind.served)
        types |= dict.fromkeys(part.type for part in kind.subresources.values() if part.type)
    return tuple(types)
