"""Recognizes keys in text, and keeps them out of logs and answers.

A key is known by its prefix, and its secret without the prefix by alphabet and length, in either
case and also where it is percent-encoded. Ids of other lengths are left as they are.
"""

from __future__ import annotations

import re
import string
from typing import Final
from urllib.parse import unquote

from contract.vocabulary import KEY_ALPHABET, KEY_LENGTH, KEY_PREFIX

CUT: Final = f"{KEY_PREFIX}…"
# A path that is percent-encoded more often than this is taken for one that hides something.
ENCODED_TIMES: Final = 3

_WORD: Final = string.ascii_letters + string.digits
_LETTERS: Final = KEY_ALPHABET + KEY_ALPHABET.lower()
_OTHERS: Final = "".join(char for char in map(chr, range(256)) if char not in _WORD)


def _encoded(chars: str) -> str:
    """One of these, percent-encoded; each further time a `%` of the one before becomes `%25`."""
    return f"%(?:25)*(?:{'|'.join(f'{ord(each):02x}' for each in chars)})"


# The secret is a whole word: a run of letters and digits that is longer is something else.
_BEGINS = rf"(?:(?<![{_WORD}])|{_encoded(_OTHERS)})"
_SECRET = rf"{_BEGINS}(?:[{_LETTERS}]|{_encoded(_LETTERS)}){{{KEY_LENGTH}}}(?!%?[{_WORD}])"
# Anything that begins like a key, so that a mistyped one is hidden too.
_PREFIX = KEY_PREFIX.replace("_", f"(?:_|{_encoded('_')})")
_PREFIXED = rf"{_PREFIX}(?:[{_WORD}]|{_encoded(_WORD)})+"
_KEY = re.compile(rf"{_PREFIXED}|{_SECRET}", re.IGNORECASE | re.ASCII)


def redacted(text: str) -> str:
    """The text without the keys in it."""
    return _KEY.sub(CUT, text)


def holds_key(text: str) -> bool:
    """Whether a key, or its beginning, stands in the text, plain or percent-encoded."""
    for _ in range(ENCODED_TIMES):
        if KEY_PREFIX in text.lower() or _KEY.search(text):
            return True
        plain = unquote(text)
        if plain == text:
            return False
        text = plain
    return True
