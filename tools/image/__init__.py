"""Image of Moorage's parts, built from Debian packages, the hashed lock and the wheel.

    packages ─┐
    lock      ├─▶ tree of files ─▶ layers ─▶ OCI layout in a tar archive
    wheel    ─┘        └─▶ SBOM

No container daemon, registry or root is needed. The same packages give the same bytes.
"""
