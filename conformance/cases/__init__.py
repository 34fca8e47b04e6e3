"""The cases, a file a noun."""
