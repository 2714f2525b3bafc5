"""Pod lifecycle on this node, from binding to removal."""
