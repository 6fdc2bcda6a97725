"""The protocols of the server, one file each."""
