"""Facts out: what happened when, in columns; everything a report shows is computed from here."""
