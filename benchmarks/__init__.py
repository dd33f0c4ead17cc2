"""Benchmarks and acceptance runs: each prints a table; none asserts a time."""
