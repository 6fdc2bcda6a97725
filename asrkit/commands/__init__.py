"""The commands: options, what they print, reports."""
