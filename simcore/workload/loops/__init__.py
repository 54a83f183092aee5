"""The training loops, one a file: pure descriptions of what an NPU does in one iteration."""
