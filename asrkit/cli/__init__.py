"""What commands share: the parser, common options, the terminal, interrupts."""
