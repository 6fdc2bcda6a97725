"""Export of the network for other programs, with checks of the written files."""
