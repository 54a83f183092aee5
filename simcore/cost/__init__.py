"""Training-run cost, strategy search, published measurements scored."""
