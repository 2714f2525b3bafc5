"""Known defects by version."""

from __future__ import annotations

import pytest

from moorage.engine.handlers.defects import gvisor_date, gvisor_defect


@pytest.mark.parametrize(
    ("version", "date", "defect"),
    [
        ("0.0~20221219.0", 20221219, "statx"),
        ("20230220.0", 20230220, "statx"),
        ("20230227.0", 20230227, "fstatat"),
        ("20231023.0", 20231023, "fstatat"),
        ("20231030.0", 20231030, ""),
        ("0.0~20240729.0", 20240729, ""),
        ("20260915.0", 20260915, ""),
        ("1.1.5", None, ""),
        ("", None, ""),
    ],
)
def test_versions_of_gvisor(version: str, date: int | None, defect: str) -> None:
    assert gvisor_date(version) == date
    result = gvisor_defect(version)
    assert result.meaning.partition(" ")[0] == defect
    assert bool(result.remedy) == bool(defect)
    assert not defect or "moor runtime add gvisor-new" in result.remedy
