"""Image store: pulls by skopeo, layers unpacked once, root filesystems and image volumes
mounted.
"""
