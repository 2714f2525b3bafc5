"""Shares: under which name what a user holds is counted."""

from __future__ import annotations

import pytest

from moorage.apiserver.endpoints.call import share_of
from moorage.apiserver.registry.request import User


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (User("x", groups=("system:masters",)), True),
        (User("system:node:n1", groups=("system:nodes", "system:authenticated")), True),
        (User("system:kube-controller-manager"), True),
        (User("system:kube-scheduler"), True),
        (User("system:serviceaccount:default:default", groups=("system:serviceaccounts",)), False),
        (User("system:anonymous", groups=("system:unauthenticated",)), False),
        (User("system:masters"), False),
    ],
)
def test_the_systems_own_are_exempt(user: User, expected: bool) -> None:
    assert share_of(user) == ("" if expected else user.name)
