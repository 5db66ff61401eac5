"""Side-by-side measurements of shadowtree and its rivals; run as `python -m benchmarks`."""
