"""Program of `make guest`: prepares the guest, or boots it and runs a command in it.

python -m tests.guest prepare
python -m tests.guest run -- cat /proc/self/cgroup
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tests.guest.machine import booted
from tests.guest.preparation import GuestError, prepare

_DEFAULT = Path("build/guest")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guest", description=__doc__)
    parser.add_argument("--directory", type=Path, default=_DEFAULT)
    parser.add_argument("verb", choices=("prepare", "run"))
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="of run: after `--`")
    options = parser.parse_args()
    try:
        if options.verb == "prepare":
            prepare(options.directory)
            return 0
        with booted(options.directory) as guest:
            ended = guest.run(shlex.join(options.words))
    except GuestError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(ended.output)
    sys.stderr.write(ended.errors)
    return ended.code


if __name__ == "__main__":
    sys.exit(main())
