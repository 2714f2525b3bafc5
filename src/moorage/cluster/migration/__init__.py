"""Migration of files and of live clusters: the I/O around `moorage.runtimeclass.migration`."""

from moorage.cluster.migration.files import FileMigration, plan_files
from moorage.cluster.migration.text_diff import unified

__all__ = ["FileMigration", "plan_files", "unified"]
