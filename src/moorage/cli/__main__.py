"""Entry point of `python -m moorage.cli`, which is `moor`."""

from moorage.cli.main import main

main()
