"""Another pipeline: a recorded step taken apart into cells and compiled for other degrees."""
