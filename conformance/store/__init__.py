"""What the wire can't show of a store: proofs for any implementation of the protocol.

`machine.prove` drives stores and a model of one side by side; `concurrent.prove` sends calls at
once and asks for an order of them that explains what came of it.
"""
