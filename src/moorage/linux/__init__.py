"""Linux kernel interfaces, each in one place: mounts, cgroups, namespaces, processes, files.

Small modules over system calls and /proc, without a notion of pods or clusters.
"""
