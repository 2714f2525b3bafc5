"""Where the files of an installation go, and what is refused before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.engine.handlers import parse_definition
from moorage.runtimes.installing import Request, RuntimeInstallationError, Source, plan_installation
from moorage.runtimes.installing.plan import check_request

_STORE, _HANDLERS = Path("/data/runtimes"), Path("/data/handlers.d")
_DIGEST = "ab" * 32


def _request(**fields: Any) -> Request:
    return Request(**{"handler": "h", "source": Source.BINARY, "origin": "/tmp/crun", **fields})


@pytest.mark.parametrize(
    ("fields", "version", "program", "adapter"),
    [
        ({}, "abababababab", "/data/runtimes/h/abababababab/crun", "oci"),
        ({"version": "1.2"}, "1.2", "/data/runtimes/h/1.2/crun", "oci"),
        ({"origin": "/x/runsc-2026"}, "abababababab",
         "/data/runtimes/h/abababababab/runsc-2026", "runsc"),
        ({"source": Source.ARCHIVE, "origin": "/a.tar", "program": "bin/youki"}, "abababababab",
         "/data/runtimes/h/abababababab/bin/youki", "oci"),
        ({"source": Source.PACKAGE, "origin": "crun", "program": "/usr/bin/crun"}, "abababababab",
         "/usr/bin/crun", "oci"),
    ],
)  # fmt: skip
def test_each_version_has_its_place(
    fields: dict[str, Any], version: str, program: str, adapter: str
) -> None:
    plan = plan_installation(_request(**fields), _DIGEST, _STORE, _HANDLERS)
    assert (plan.version, str(plan.program)) == (version, program)
    assert plan.file == _HANDLERS / "h.toml"
    definition = parse_definition(plan.file, plan.definition)
    assert (definition.binary, definition.adapter) == (program, adapter)


def test_options_are_those_of_the_adapter() -> None:
    options = {"no_pivot_root": "true", "root": '/run/a "b"'}
    plan = plan_installation(_request(options=options), _DIGEST, _STORE, _HANDLERS)
    parsed: Any = parse_definition(plan.file, plan.definition).options
    assert (parsed.no_pivot_root, parsed.root) == (True, '/run/a "b"')
    with pytest.raises(RuntimeInstallationError, match="platform"):
        plan_installation(_request(options={"platform": "kvm"}), _DIGEST, _STORE, _HANDLERS)


@pytest.mark.parametrize(
    "key",
    ['root = "/x"\nno_pivot_root', "root = true\n[overhead]\ncpu", 'a"\n', "a.b", "", "root\x7f"],
)
def test_the_name_of_an_option_is_one_word_of_the_file(key: str) -> None:
    request = _request(options={key: "true"})
    with pytest.raises(RuntimeInstallationError, match="unknown") as refusal:
        plan_installation(request, _DIGEST, _STORE, _HANDLERS)
    assert f"`{key}`" in str(refusal.value)


def test_a_value_of_an_option_may_have_any_character() -> None:
    value = "/a\x7fb\n[overhead]\"'\\\u2028"
    plan = plan_installation(_request(options={"root": value}), _DIGEST, _STORE, _HANDLERS)
    parsed: Any = parse_definition(plan.file, plan.definition).options
    assert parsed.root == value


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"handler": "A.b"}, "cannot be a handler's name"),
        ({"version": "../up"}, "cannot be a version"),
        ({"version": ".hidden"}, "cannot be a version"),
        ({"digest": "abc"}, "64 hexadecimal digits"),
        ({"source": Source.ARCHIVE, "program": "a"}, "digest is required"),
        ({"source": Source.ARCHIVE, "digest": _DIGEST}, "which program of the archive"),
        ({"source": Source.ARCHIVE, "digest": _DIGEST, "program": "/a"}, "a path inside it"),
        ({"source": Source.ARCHIVE, "digest": _DIGEST, "program": "a/../../b"}, "a path inside"),
        ({"source": Source.PACKAGE, "program": "crun"}, "an absolute path"),
    ],
)
def test_bad_requests_are_refused(fields: dict[str, Any], complaint: str) -> None:
    check_request(_request())
    with pytest.raises(RuntimeInstallationError, match=complaint):
        check_request(msgspec.structs.replace(_request(), **fields))
