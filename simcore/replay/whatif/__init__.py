"""What could be different about a recorded step: durations, networks, degrees, layers, overlap."""
