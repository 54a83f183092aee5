"""The timing rules of each peer and of the native model, as data and small functions."""
