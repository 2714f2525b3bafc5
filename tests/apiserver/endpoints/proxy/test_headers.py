"""Headers of a proxied request: what reaches the server behind."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from moorage.apiserver.endpoints.proxy.headers import request_headers


@pytest.mark.parametrize(
    "name",
    ["X-Remote-User", "x_remote_user", "X-Remote_Extra-a", "Impersonate_User", "Authorization"],
)
def test_no_spelling_of_an_identity_is_passed_on(name: str) -> None:
    request = make_mocked_request("GET", "/x", {name: "admin", "X-Other_Name": "kept"})
    passed = {key.lower(): value for key, value in request_headers(request, "/x")}
    assert "admin" not in passed.values()
    assert passed["x-other_name"] == "kept"
