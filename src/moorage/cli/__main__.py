"""`python -m moorage.cli` is `moor`."""

from moorage.cli.main import main

main()
