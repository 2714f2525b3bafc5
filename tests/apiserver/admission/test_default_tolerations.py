"""Five minutes on an unready or unreachable node, unless the pod says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import admit, pod, write

N = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 300}  # fmt: skip
U = N | {"key": "node.kubernetes.io/unreachable"}
ALL = {"operator": "Exists"}
OTHER_EFFECT = {"operator": "Exists", "effect": "NoSchedule"}
OWN = N | {"tolerationSeconds": 5}
OWN_ANY_EFFECT = {"key": U["key"], "operator": "Exists"}
EQUAL = {"key": N["key"], "operator": "Equal", "value": "x", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], [N, U]),
        ([ALL], [ALL]),
        ([OTHER_EFFECT], [OTHER_EFFECT, N, U]),
        ([OWN], [OWN, U]),
        ([OWN_ANY_EFFECT], [OWN_ANY_EFFECT, N]),
        ([EQUAL], [EQUAL, U]),
        ([N, U], [N, U]),
    ],
)
def test_missing_tolerations_are_added_behind_the_pods_own(
    own: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    obj = admit(DefaultTolerationSeconds(), write(POD, pod({"tolerations": own} if own else {})))
    assert obj["spec"]["tolerations"] == expected


def test_an_update_that_leaves_them_out_gets_them_again() -> None:
    old = pod({"tolerations": [N, U]})
    changed = write(POD, pod({"tolerations": [EQUAL]}), old=old, operation="UPDATE")
    obj = admit(DefaultTolerationSeconds(), changed)
    assert obj["spec"]["tolerations"] == [EQUAL, U]
    assert DefaultTolerationSeconds.scope.operations == frozenset({"CREATE", "UPDATE"})
