"""Registry mirrors."""

from __future__ import annotations

import tomllib

import pytest

from tests.containerd_configuration import hosts_files


def test_each_registry_asks_its_mirror_and_then_itself() -> None:
    files = hosts_files(
        {"docker.io": "https://mirror.example/hub/", "registry.example": "http://m:5000"}
    )
    assert {name: tomllib.loads(text) for name, text in files.items()} == {
        "docker.io": {
            "server": "https://registry-1.docker.io",
            "host": {"https://mirror.example/hub": {"capabilities": ["pull", "resolve"]}},
        },
        "registry.example": {
            "server": "https://registry.example",
            "host": {"http://m:5000": {"capabilities": ["pull", "resolve"]}},
        },
    }


def test_a_star_is_for_every_other_registry() -> None:
    assert tomllib.loads(hosts_files({"*": "http://m:5000"})["_default"]) == {
        "host": {"http://m:5000": {"capabilities": ["pull", "resolve"]}}
    }


@pytest.mark.parametrize("mirror", ["mirror.example", "ftp://m", "https://"])
def test_mirror_without_url_is_rejected(mirror: str) -> None:
    with pytest.raises(ValueError, match="no http:// or https:// URL"):
        hosts_files({"docker.io": mirror})
