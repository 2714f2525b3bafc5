"""What is asked of the Linux kernel by name: mounts, cgroups, capabilities, processes.

Small modules over system calls and /proc, with no word about pods or clusters.
"""
