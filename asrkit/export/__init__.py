"""Writing the network for other programs, and checking what was written."""
