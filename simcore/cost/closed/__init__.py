"""Training runs in closed form, as two public scripts have them, and their schedules executed."""
