"""A host with systemd as PID 1 and unified cgroups: a guest that tests run commands in.

    make guest                                        # prepare it, once: minutes, and root
    MOORAGE_GUEST=build/guest pytest tests/guest      # run the tests in it
    python -m tests.guest run -- systemctl status     # boot it, run a command, stop it

    preparation ─▶ kernel, initrd, disk, key ─▶ machine ─▶ ssh ─▶ commands

It is QEMU with KVM, else user-mode Linux, else an emulated machine. Everything in it comes from
Debian's packages as apt is configured here, and from the hashed lock as pip is. Nothing that runs
in it is kept: each boot begins with the prepared disk.
"""
