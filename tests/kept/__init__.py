"""Files that a former version wrote, and the numbers that it computed from them."""
