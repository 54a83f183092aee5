"""Benchmarks: `pytest benchmarks/`."""
