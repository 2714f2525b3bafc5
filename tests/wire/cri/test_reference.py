from __future__ import annotations

import pytest

from moorage.wire.cri.reference import InvalidReferenceError, Reference, parse, with_default_tag

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "wanted", "tagged"),
    [
        ("busybox", Reference("docker.io", "library/busybox", "latest", ""), "busybox:latest"),
        ("busybox:1.36", Reference("docker.io", "library/busybox", "1.36", ""), "busybox:1.36"),
        ("team/app", Reference("docker.io", "team/app", "latest", ""), "team/app:latest"),
        (
            "registry.example/pause:3.10",
            Reference("registry.example", "pause", "3.10", ""),
            "registry.example/pause:3.10",
        ),
        (
            "localhost/app",
            Reference("localhost", "app", "latest", ""),
            "localhost/app:latest",
        ),
        (
            "localhost:5000/a/b",
            Reference("localhost:5000", "a/b", "latest", ""),
            "localhost:5000/a/b:latest",
        ),
        (
            "[fd00::1]:5000/app:x",
            Reference("[fd00::1]:5000", "app", "x", ""),
            "[fd00::1]:5000/app:x",
        ),
        (f"app@{DIGEST}", Reference("docker.io", "library/app", "", DIGEST), f"app@{DIGEST}"),
        (
            f"app:1@{DIGEST}",
            Reference("docker.io", "library/app", "1", DIGEST),
            f"app:1@{DIGEST}",
        ),
        ("Host/app", Reference("Host", "app", "latest", ""), "Host/app:latest"),
    ],
)
def test_what_a_name_says(image: str, wanted: Reference, tagged: str) -> None:
    assert parse(image) == wanted
    assert with_default_tag(image) == tagged


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/team/app:1", "docker.io/team/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        (f"app:1@{DIGEST}", f"docker.io/library/app@{DIGEST}"),
    ],
)
def test_a_name_has_one_full_spelling(image: str, full: str) -> None:
    assert parse(image).full == full
    assert parse(full).full == full


def test_the_repository_is_registry_and_path() -> None:
    assert parse("busybox").repository == "docker.io/library/busybox"


@pytest.mark.parametrize(
    "image",
    [
        "",
        "a b",
        "app:",
        "app@sha256:short",
        "0123456789abcdef" * 4,
        "/app",
        "app:ä",
        "app:1:2",
        "a//b",
        "-a",
    ],
)
def test_invalid_names_are_rejected(image: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        parse(image)
    assert str(caught.value).startswith(
        f'couldn\'t parse image name "{image}": invalid reference format'
    )


def test_capitals_are_named_as_the_fault() -> None:
    with pytest.raises(InvalidReferenceError, match="repository name must be lowercase"):
        parse("BusyBox")
