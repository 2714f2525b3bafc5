"""nftables: scripts are transactions, errors are the kernel's."""

from __future__ import annotations

import sys

import pytest

from moorage.linux.nftables import Nftables, NftablesMissingError
from tests.network.kernel import namespace, skip_without_nftables

pytestmark = pytest.mark.root
RUN = """
import sys
from moorage.linux.nftables import Nftables, NftablesError
kernel = Nftables()
for script in sys.argv[1:]:
    try:
        print(kernel.run(script).strip().replace(chr(10), " ").replace(chr(9), ""))
    except NftablesError as error:
        print("refused:", str(error).splitlines()[0])
kernel.close()
"""


def test_a_script_is_applied_whole_or_not_at_all() -> None:
    skip_without_nftables()
    with namespace() as one:
        out = one.run(
            sys.executable, "-c", RUN,
            "add table ip t; add set ip t s { type ipv4_addr; }",
            "add element ip t s { 10.0.0.1 }; delete element ip t s { 10.0.0.9 }",
            "list set ip t s",
            "add nonsense",
            "add element ip t s { 10.0.0.1 }",
            "list set ip t s",
        ).splitlines()  # fmt: skip
    assert out[0] == ""
    assert out[1].startswith("refused: Error: Could not process rule: No such file")
    assert "10.0.0.1" not in out[2]
    assert out[3].startswith("refused: Error: syntax error")
    assert out[4] == ""
    assert "elements = { 10.0.0.1 }" in out[5]


def test_without_the_library_the_error_says_what_to_install() -> None:
    with pytest.raises(NftablesMissingError, match="apt-get install libnftables1"):
        Nftables("libnftables.so.none")
