from __future__ import annotations

import pytest

from moorage.linux.kernel import kernel_version


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.18.5", (6, 18)), ("5.10.0-28-amd64", (5, 10)), ("4.4", (4, 4)), ("next", (0, 0))],
)
def test_kernels(release: str, expected: tuple[int, int]) -> None:
    assert kernel_version(release) == expected
