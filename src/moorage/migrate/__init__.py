"""Migration of files and of live clusters: the I/O around `moorage.migrate.rules`."""

from moorage.migrate.files import FileMigration, plan_files
from moorage.migrate.text_diff import unified

__all__ = ["FileMigration", "plan_files", "unified"]
