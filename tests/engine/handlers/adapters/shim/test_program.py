"""What shims print when they start, of every age."""

from __future__ import annotations

import pytest

from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.adapters.shim.program import Address, parse_address

PATH = "/run/containerd/s/0123"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (f"unix://{PATH}", Address(PATH, 2)),
        (f"{PATH}\n", Address(PATH, 2)),
        (
            f'{{"version":3,"address":"unix://{PATH}","protocol":"ttrpc"}}',
            Address(PATH, 3),
        ),
        (f'{{"version":2,"address":"unix://{PATH}","more":1}}', Address(PATH, 2)),
    ],
)
def test_both_forms_of_an_address_are_understood(printed: str, expected: Address) -> None:
    assert parse_address(printed) == expected
    assert expected.service == f"containerd.task.v{expected.version}.Task"


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "{",
        '{"version":3}',
        f'{{"version":4,"address":"unix://{PATH}"}}',
        f'{{"version":3,"address":"unix://{PATH}","protocol":"grpc"}}',
        "vsock://3:1024",
    ],
)
def test_unsupported_address_is_rejected(printed: str) -> None:
    with pytest.raises(AdapterError, match="the shim"):
        parse_address(printed)
