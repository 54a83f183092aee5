"""Collectives cut into chunks: which dimensions they go through, which of them waits, which begins."""
