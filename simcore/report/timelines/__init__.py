"""A run's timeline for every viewer: what part of it is shown, on which tracks, and a file for each format."""
