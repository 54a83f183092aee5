"""Views of a timeline: text, JSON, pictures, traces."""
