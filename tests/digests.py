"""Argon2 as users have it, and the same at next to no cost: nearly every test mints a key."""

from __future__ import annotations

import argon2

from collector import keys

DEAR = keys._hasher
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=argon2.Type.ID)
