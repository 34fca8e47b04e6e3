"""A simulated fleet: who does what next, its last hour in a store, and its beats over HTTP."""
