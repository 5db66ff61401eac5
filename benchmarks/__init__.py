"""Side-by-side measurements of shadowtree and what else could do its work; run as `python -m benchmarks`."""
