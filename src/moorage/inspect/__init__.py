"""Looking at a cluster: explanations, usage of classes, comparisons, benches, the demo."""
