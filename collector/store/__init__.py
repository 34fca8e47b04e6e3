"""The two stores, behind one protocol."""
