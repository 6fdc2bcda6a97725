"""The shared parts of commands: the parser, common options, the terminal, interrupts."""
