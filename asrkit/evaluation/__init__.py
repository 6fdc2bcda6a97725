"""How right and how late what was recognised is."""
