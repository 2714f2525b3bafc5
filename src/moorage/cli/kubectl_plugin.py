"""Plugin of kubectl: `kubectl moorage …` is `moor …` on the cluster that kubectl works on.

kubectl finds plugins by their names in PATH, and asks `kubectl_complete-NAME` for completions.
Source: kubectl docs "Extend kubectl with plugins", kubectl `completion` of plugins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import ShellComplete

from moorage.cli.connection import KUBECONFIG_VARIABLE
from moorage.cli.main import cli
from moorage.cli.main import main as moor

_USERS_KUBECONFIG = Path.home() / ".kube" / "config"
_NO_FILES = 4
"""Directive of a completion: no names of files. Source: cobra `ShellCompDirective`."""


def main() -> Any:
    """Run `moor` with kubectl's choice of a cluster: KUBECONFIG, else ~/.kube/config."""
    _choose_as_kubectl()
    return moor(sys.argv[1:])


def complete() -> None:
    """Print the completions of the words that kubectl gives, and how they are to be used."""
    _choose_as_kubectl()
    *words, incomplete = sys.argv[1:] or [""]
    completions = ShellComplete(cli, {}, "moor", "").get_completions(words, incomplete)
    for item in completions:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    takes_files = any(item.type in ("file", "dir") for item in completions)
    click.echo(f":{0 if takes_files else _NO_FILES}")


def _choose_as_kubectl() -> None:
    if not os.environ.get(KUBECONFIG_VARIABLE) and _USERS_KUBECONFIG.is_file():
        os.environ[KUBECONFIG_VARIABLE] = str(_USERS_KUBECONFIG)
