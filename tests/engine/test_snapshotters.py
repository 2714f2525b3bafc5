"""Which snapshotter a handler asks for, as the handlers are now."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.snapshotters import HandlerSnapshotters
from moorage.handlers.catalogue import Catalogue, OfferedHandler
from moorage.handlers.definition import parse_definition


def offered(name: str, more: str = "") -> OfferedHandler:
    text = f'adapter = "oci"\nbinary = "runc"\n{more}\n'
    return OfferedHandler(definition=parse_definition(Path(f"/h/{name}.toml"), text.encode()))


def test_each_handler_has_its_own_and_the_default_one_its_too() -> None:
    handlers = {
        "a": offered("a"),
        "b": offered("b", 'snapshotter = "native"\ndefault = true'),
    }
    catalogues = [Catalogue()]
    snapshotters = HandlerSnapshotters(lambda: catalogues[0])
    assert (len(snapshotters), list(snapshotters)) == (0, [])
    with pytest.raises(KeyError):
        snapshotters[""]
    catalogues[0] = Catalogue(handlers)
    assert (snapshotters["a"], snapshotters["b"], snapshotters[""]) == ("", "native", "native")
    assert (len(snapshotters), list(snapshotters)) == (2, ["a", "b"])
    assert snapshotters.get("c") is None
