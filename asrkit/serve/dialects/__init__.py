"""The protocols of the server: pure functions from messages to items, and back."""
