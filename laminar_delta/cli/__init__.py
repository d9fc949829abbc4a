"""The command line: thin commands, and what they print."""
