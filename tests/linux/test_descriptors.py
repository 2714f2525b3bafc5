"""The limit of open descriptors, in processes of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

RAISED = """
import resource
from moorage.linux.descriptors import descriptor_limit, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(descriptor_limit(), raise_descriptor_limit(), descriptor_limit())
"""


@pytest.mark.parametrize(("soft", "hard"), [(100, 400), (400, 400)])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int) -> None:
    code = RAISED.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(soft), str(hard), str(hard)]
