"""Who talks to whom, and when."""
