"""The run: fold NPUs into classes, build processes, simulate, check."""
