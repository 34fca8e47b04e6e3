"""The chapters of the suite, one module each."""
