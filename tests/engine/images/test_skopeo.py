from __future__ import annotations

import tomllib

import pytest

from moorage.engine.images.skopeo import is_loopback, registries_file


@pytest.mark.parametrize(
    ("registry", "wanted"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.3.4.5", True),
        ("[::1]:5000", True),
        ("docker.io", False),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
    ],
)
def test_a_registry_on_this_machine_is_known(registry: str, wanted: bool) -> None:
    assert is_loopback(registry) is wanted


def test_mirrors_are_spelled_for_the_program() -> None:
    text = registries_file({"docker.io": "http://m:5000/hub/", 'q"': "https://n"})
    assert tomllib.loads(text)["registry"] == [
        {
            "prefix": "docker.io",
            "location": "docker.io",
            "mirror": [{"location": "m:5000/hub", "insecure": True}],
        },
        {"prefix": 'q"', "location": 'q"', "mirror": [{"location": "n", "insecure": False}]},
    ]
