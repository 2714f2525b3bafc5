"""Who may call the node agent's server."""

from __future__ import annotations

import pytest

from moorage.node.server.endpoint import common_name


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((), ""),
        (((("organizationName", "dev"),),), ""),
        (((("commonName", "alice"),),), "alice"),
        (((("commonName", "alice"),), (("commonName", "bob"),)), "bob"),
        (((("commonName", "alice"), ("commonName", "bob")),), "bob"),
    ],
    ids=["empty", "only a group", "one name", "two names", "two names in one part"],
)
def test_the_last_common_name_counts_as_in_the_api_server(
    subject: tuple[tuple[tuple[str, str], ...], ...], name: str
) -> None:
    assert common_name({"subject": subject}) == name
