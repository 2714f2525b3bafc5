from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.oci import ImageDefaults, exec_process
from moorage.engine.oci.process import DEFAULT_PATH, arguments, environment, working_directory
from moorage.wire.cri import pb
from tests.engine.oci.requests import container

BOTH = ImageDefaults(entrypoint=("/entry",), command=("default",))
ENTRY = ImageDefaults(entrypoint=("/entry",))
COMMAND = ImageDefaults(command=("/bin/sh",))


@pytest.mark.parametrize(
    ("command", "args", "image", "expected"),
    [
        ([], [], BOTH, ["/entry", "default"]),
        ([], [], COMMAND, ["/bin/sh"]),
        ([], ["-x"], BOTH, ["/entry", "-x"]),
        (["/own"], [], BOTH, ["/own"]),
        (["/own"], ["-x"], BOTH, ["/own", "-x"]),
        ([], [], ENTRY, ["/entry"]),
        ([], ["/only"], COMMAND, ["/only"]),
    ],
)
def test_commands(
    command: list[str], args: list[str], image: ImageDefaults, expected: list[str]
) -> None:
    assert arguments(container(command=command, args=args), image) == expected


def test_no_command_anywhere_is_an_error() -> None:
    with pytest.raises(InvalidError, match="no command specified: neither container 'server'"):
        arguments(container(command=[]), ImageDefaults())


def pairs(**values: bytes) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in values.items()]


@pytest.mark.parametrize(
    ("fields", "image_env", "hostname", "expected"),
    [
        ({}, (), "", [f"PATH={DEFAULT_PATH}"]),
        ({}, ("PATH=/bin", "A=1"), "h", ["PATH=/bin", "A=1", "HOSTNAME=h"]),
        ({"envs": pairs(A=b"2", B=b"x=y")}, ("PATH=/bin", "A=1"), "h",
         ["PATH=/bin", "A=2", "HOSTNAME=h", "B=x=y"]),
        ({"envs": pairs(HOSTNAME=b"mine")}, ("HOSTNAME=image",), "h",
         [f"PATH={DEFAULT_PATH}", "HOSTNAME=mine"]),
        ({"tty": True}, (), "", [f"PATH={DEFAULT_PATH}", "TERM=xterm"]),
        ({"tty": True}, ("TERM=vt100",), "", [f"PATH={DEFAULT_PATH}", "TERM=vt100"]),
    ],
)  # fmt: skip
def test_environments(
    fields: dict[str, Any], image_env: tuple[str, ...], hostname: str, expected: list[str]
) -> None:
    assert environment(container(**fields), ImageDefaults(env=image_env), hostname) == expected


@pytest.mark.parametrize(
    ("envs", "text"),
    [
        (pairs(A=b"\xff"), "env 'A' is not UTF-8"),
        (pairs(A=b"a\0b"), "NUL"),
        ([pb.KeyValue(key="")], "has the invalid name ''"),
        ([pb.KeyValue(key="A=B")], "has the invalid name 'A=B'"),
    ],
)
def test_invalid_environment_is_rejected(envs: list[pb.KeyValue], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        environment(container(envs=envs), ImageDefaults(), "h")


@pytest.mark.parametrize(
    ("own", "of_image", "expected"),
    [("", "", "/"), ("/a", "/b", "/a"), ("", "/b", "/b"), ("", "app", "/app")],
)
def test_directories(own: str, of_image: str, expected: str) -> None:
    image = ImageDefaults(working_dir=of_image)
    assert working_directory(container(working_dir=own), image) == expected


PROCESS = {
    "terminal": False,
    "args": ["/server"],
    "env": ["PATH=/bin"],
    "cwd": "/srv",
    "user": {"uid": 5, "gid": 6},
    "noNewPrivileges": True,
    "apparmorProfile": "strict",
}


def test_a_second_command_is_confined_as_the_first() -> None:
    process = exec_process(["sh", "-c", "x"], PROCESS)
    assert process == PROCESS | {"args": ["sh", "-c", "x"]}
    assert PROCESS["args"] == ["/server"]


def test_a_terminal_has_a_type_unless_the_container_has_one() -> None:
    assert exec_process(["sh"], PROCESS, has_terminal=True)["env"][-1] == "TERM=xterm"
    own = PROCESS | {"env": ["TERM=vt100"], "terminal": True}
    assert exec_process(["sh"], own, has_terminal=True)["env"] == ["TERM=vt100"]
    assert exec_process(["sh"], own)["terminal"] is False


def test_an_empty_command_is_an_error() -> None:
    with pytest.raises(InvalidError, match="cmd is empty"):
        exec_process([], PROCESS)


names = st.text("ABC_", min_size=1, max_size=3)


@given(st.lists(st.tuples(names, st.text(st.characters(codec="utf-8", exclude_characters="\0")))))
def test_a_name_comes_once_with_its_last_value(given_pairs: list[tuple[str, str]]) -> None:
    envs = [pb.KeyValue(key=key, value=value.encode()) for key, value in given_pairs]
    variables = environment(container(envs=envs), ImageDefaults(), "")
    by_name = dict(variable.split("=", 1) for variable in variables)
    assert len(by_name) == len(variables)
    assert dict(given_pairs).items() <= by_name.items()
