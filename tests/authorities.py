"""The authority of servers in tests: one for all, since to make one and to sync its files costs
more than most of what is done with it.
"""

from __future__ import annotations

import atexit
import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from moorage.cluster.access.certificates import Authority, Subject

SERVER = Subject("kube-apiserver", hosts=("127.0.0.1",))
ADMIN = Subject("kubernetes-admin", "system:masters")
CONTROLLERS = Subject("system:kube-controller-manager")
FRONT_PROXY = Subject("front-proxy-client")


def prepared_authority(directory: Path) -> Authority:
    """Return an authority in a directory, which may have the files already.

    Its pairs `server`, `admin` and `controllers`, of the subjects here, and its signing key are
    there; pairs of other names or subjects are issued when they are wanted.
    """
    if not directory.exists():
        shutil.copytree(_made(), directory)
    return Authority(directory, datetime.now(UTC))


def prepared_front_proxy(directory: Path) -> Authority:
    """Return another authority in a directory, with the pair `client` of a front proxy."""
    if not directory.exists():
        shutil.copytree(_made() / "front-proxy", directory)
    return Authority(directory, datetime.now(UTC))


@cache
def _made() -> Path:
    directory = TemporaryDirectory(prefix="moor-authority-")
    atexit.register(directory.cleanup)
    path, now = Path(directory.name), datetime.now(UTC)
    authority = Authority(path, now)
    authority.issue("server", SERVER)
    authority.issue("admin", ADMIN)
    authority.issue("controllers", CONTROLLERS)
    authority.signing_key()
    Authority(path / "front-proxy", now).issue("client", FRONT_PROXY)
    return path
