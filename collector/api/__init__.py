"""The doors: each parses, calls one verb, and renders."""
