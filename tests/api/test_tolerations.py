from __future__ import annotations

import pytest

from moorage.api.nodes import Taint, first_untolerated, tolerates
from moorage.api.pods import Toleration

TAINT = Taint(key="rt", value="gvisor", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="rt", operator="Equal", value="gvisor", effect="NoSchedule"), True),
        (Toleration(key="rt", value="gvisor"), True),
        (Toleration(key="rt", value="kata"), False),
        (Toleration(key="rt", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="rt", operator="Gt", value="1"), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_only_taints_of_the_asked_effects_count() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    assert first_untolerated([soft], [], {"NoSchedule"}) is None
    assert first_untolerated([soft, TAINT], [], {"NoSchedule"}) == TAINT
