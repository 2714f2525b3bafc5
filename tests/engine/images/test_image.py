from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.engine.images.image import (
    Image,
    ImageConfiguration,
    MalformedImageError,
    check_digest,
    read_configuration,
)
from moorage.engine.images.service import image_message
from tests.engine.images.builds import configuration


@pytest.mark.parametrize(
    ("user", "uid", "username"),
    [
        ("", None, ""),
        ("0", 0, ""),
        ("1000", 1000, ""),
        ("1000:5", 1000, ""),
        ("web", None, "web"),
        ("web:staff", None, "web"),
        ("web:5", None, "web"),
        ("-1", None, "-1"),
        ("²", None, "²"),
        ("00", 0, ""),
        ("007", 7, ""),
        ("0:1000", 0, ""),
        (":1000", None, ""),
        ("+1", None, "+1"),
        (" 1", None, " 1"),
        ("1e3", None, "1e3"),
        ("0x0", None, "0x0"),
        ("9223372036854775807", 2**63 - 1, ""),
        ("9223372036854775808", None, "9223372036854775808"),
        ("0" * 5000, None, "0" * 5000),
        ("9" * 5000, None, "9" * 5000),
    ],
)
def test_the_user_is_a_number_or_a_name(user: str, uid: int | None, username: str) -> None:
    image = Image(id="i", layers=(), size_bytes=1, configuration=ImageConfiguration(user=user))
    assert (image.uid, image.username) == (uid, username)


def test_an_image_with_a_huge_user_can_be_listed() -> None:
    for user in ("9" * 20, "9" * 5000):
        named = ImageConfiguration(user=user)
        image = Image(id="i", layers=(), size_bytes=1, configuration=named)
        message = image_message(image)
        assert (message.HasField("uid"), message.username) == (False, user)


def test_a_configuration_is_read() -> None:
    process = {
        "User": "u", "Env": ["A=b"], "Entrypoint": ["/e"], "Cmd": ["c"], "WorkingDir": "/w",
        "StopSignal": "SIGINT", "Volumes": {"/v": {}}, "ExposedPorts": {"80/tcp": {}},
        "Labels": {"l": "x"}, "Healthcheck": {"Test": []},
    }  # fmt: skip
    read, layers = read_configuration(configuration([b"a", b"b"], process))
    assert len(layers) == 2
    assert read == ImageConfiguration(
        user="u", env=("A=b",), entrypoint=("/e",), command=("c",), working_dir="/w",
        stop_signal="SIGINT", volumes=("/v",), exposed_ports=("80/tcp",), labels={"l": "x"},
    )  # fmt: skip


def test_what_is_null_or_left_out_is_empty() -> None:
    nothing = {"Env": None, "Entrypoint": None, "Cmd": None, "Labels": None, "Volumes": None}
    assert read_configuration(configuration([], nothing))[0] == ImageConfiguration()
    assert read_configuration(b'{"rootfs":{"diff_ids":[]}}') == (ImageConfiguration(), ())


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff",
        b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"[]",
        b"{}",
        b'{"rootfs":{"diff_ids":["sha256:../../../etc"]}}',
        json.dumps({"rootfs": {"diff_ids": ["sha512:" + "a" * 128]}}).encode(),
        json.dumps({"rootfs": {"diff_ids": ["sha256:" + "A" * 64]}}).encode(),
        b'{"rootfs":{"diff_ids":[]},"config":{"Env":7}}',
    ],
)
def test_invalid_configuration_is_rejected(blob: Any) -> None:
    with pytest.raises(MalformedImageError):
        read_configuration(blob)


HEX = "0123456789abcdef" * 4


def test_a_digest_is_sha256_and_64_lower_case_digits() -> None:
    assert check_digest(f"sha256:{HEX}") == f"sha256:{HEX}"


@pytest.mark.parametrize(
    "text",
    ["", HEX, f"sha256:{HEX[1:]}", f"sha256:{HEX}0", f"sha256:{HEX[1:]}g", f"sha256:{HEX[1:]}A",
     f"sha512:{HEX}", f"sha256-{HEX}", "x" * 71, f"sha256:{HEX[2:]}/.", "0" * 71],
)  # fmt: skip
def test_other_digests_are_refused(text: str) -> None:
    with pytest.raises(MalformedImageError, match="is not a sha256 digest"):
        check_digest(text)


def test_a_configuration_may_be_as_large_as_the_limit() -> None:
    blob = b'{"rootfs":{"diff_ids":[]}}'
    assert read_configuration(blob, len(blob)) == (ImageConfiguration(), ())
    with pytest.raises(MalformedImageError, match="larger than 26 bytes"):
        read_configuration(blob + b" ", len(blob))


@pytest.mark.parametrize(
    ("tags", "digests", "name"),
    [(("t", "u"), ("d",), "t"), ((), ("d", "e"), "d"), ((), (), "i")],
)
def test_name_of_an_image(tags: tuple[str, ...], digests: tuple[str, ...], name: str) -> None:
    image = Image(
        id="i", tags=tags, digests=digests, layers=(), size_bytes=1,
        configuration=ImageConfiguration(),
    )  # fmt: skip
    assert image.name == name
