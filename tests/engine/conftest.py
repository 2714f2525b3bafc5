"""Where crun runs containers, whatever the layout of this host's cgroups."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator

import pytest

from moorage.cluster.engine.paths import HUGETLB_MARKER
from moorage.cluster.engine.teardown import remove_shared
from moorage.cluster.host.hugetlb import mount_hugetlb_v1
from moorage.cluster.layout import RUN
from moorage.linux.cgroups import current_cgroups
from moorage.linux.trust import PASSABLE, make_private


@pytest.fixture(scope="session")
def crun_has_cgroups() -> Iterator[None]:
    """Have the hugetlb controller where crun needs it, as a cluster has it moved.

    A cluster beside the tests leaves it there, since it finds a run directory of another.
    """
    if os.geteuid() != 0 or shutil.which("crun") is None:
        yield
        return
    directory = RUN / f"test-{secrets.token_hex(4)}"
    make_private(directory, PASSABLE)
    try:
        mount_hugetlb_v1(current_cgroups(), HUGETLB_MARKER)
        yield
    finally:
        directory.rmdir()
        remove_shared()
