"""Proofs and measurements on real collector processes and real stores."""
