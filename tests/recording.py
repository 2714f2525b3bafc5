"""Recorded tables: what a declaration comes to, kept as JSON and compared entry by entry.

Run the tests with MOORAGE_RECORD=1 to write the tables again after an intended change, and look at
the difference before it is committed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parent


def digest(value: Any) -> str:
    """A short digest of a JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def assert_recorded(name: str, values: Mapping[str, Any]) -> None:
    """Fail for each entry that differs from the recorded table, is new in it, or has gone.

    `name` is PACKAGE/TABLE: the table is in `tests/PACKAGE/recorded/TABLE.json`.
    """
    package, _, table = name.rpartition("/")
    path = _TESTS / package / "recorded" / f"{table}.json"
    values = json.loads(json.dumps(values))
    if os.environ.get("MOORAGE_RECORD"):
        lines = [f"{json.dumps(key)}: {json.dumps(values[key])}" for key in sorted(values)]
        path.parent.mkdir(exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(path.read_text())
    differing = {
        key: (recorded.get(key), values.get(key))
        for key in sorted(recorded.keys() | values.keys())
        if recorded.get(key) != values.get(key)
    }
    shown = [f"{key}: recorded {was}, now {now}" for key, (was, now) in differing.items()]
    assert not differing, "\n".join(
        [*shown, "if intended: MOORAGE_RECORD=1 pytest, and look at the difference"]
    )
