"""Options that several commands share: directories, endpoints, KEY=VALUE."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from moorage.cli.errors import CliError
from moorage.cli.options import Seconds, cluster_of, default_data_dir, pairs, socket_path


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs("--x", ("a=b", "c=d=e", "a=f")) == {"a": "f", "c": "d=e"}


@pytest.mark.parametrize("text", ["a", "=b", "a=", ""])
def test_a_pair_without_key_or_value_is_wrong(text: str) -> None:
    with pytest.raises(click.UsageError, match=rf"--x takes KEY=VALUE, not '{text}'"):
        pairs("--x", (text,))


@pytest.mark.parametrize("path", ["/a.sock", f"/{'x' * 106}"])
def test_a_sockets_path(path: str) -> None:
    assert socket_path("--x", f"unix://{path}") == Path(path)


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("/a.sock", "of the form unix"),
        ("tcp:///a.sock", "of the form unix"),
        ("unix://a.sock", "of the form unix"),
        (f"unix:///{'x' * 107}", "at most 107 bytes"),
        (f"unix:///{'é' * 54}", "at most 107 bytes"),
    ],
)
def test_invalid_endpoint_is_a_usage_error(endpoint: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        socket_path("--x", endpoint)


@pytest.mark.parametrize(
    ("euid", "variables", "directory"),
    [
        (0, {"XDG_DATA_HOME": "/data"}, Path("/var/lib/moorage")),
        (1000, {}, Path.home() / ".local/share/moorage"),
        (1000, {"XDG_DATA_HOME": "/data"}, Path("/data/moorage")),
    ],
)
def test_the_directory_without_an_option(
    euid: int, variables: dict[str, str], directory: Path
) -> None:
    assert default_data_dir(euid, variables) == directory


def test_links_to_the_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert cluster_of(tmp_path / "link").directory == tmp_path / "real"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CliError, match="it has a loop of symbolic links"):
        cluster_of(tmp_path / "loop")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("40", 40.0), ("1.5", 1.5), ("40s", 40.0), ("2m30s", 150.0), ("1h", 3600.0)],
)
def test_seconds_may_be_a_duration_as_kubectl_takes_it(text: str, seconds: float) -> None:
    assert Seconds(min=1).convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "'soon' is neither a number of seconds nor a duration such as 90s or 5m"),
        ("500ms", "0.5 is not in the range x>=1"),
        ("-1s", "'-1s' is neither"),
        ("nan", "nan is no time"),
        ("1e999", "inf is no time"),
    ],
)
def test_what_is_no_duration_is_wrong(text: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        Seconds(min=1).convert(text, None, None)
