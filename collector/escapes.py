"""Text of others, in a form that does nothing to the terminal or the log that shows it."""

from __future__ import annotations

import json
import re
import unicodedata

# The characters to look at one by one: a roster is megabytes of mostly others.
_UNUSUAL = re.compile("[^ -~]")


def printable(text: str) -> str:
    """The text with an escape for what would end the line, turn it around or move the cursor.

    Others wrote the text. The escapes are JSON's, so JSON that is escaped like this says the same.
    """
    return _UNUSUAL.sub(_escaped, text)


def json_line(value: object) -> str:
    """The value for programs, and for a person who looks on: letters of any script stay."""
    return printable(json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    """Controls, surrogates, formats such as those of direction, and ends of lines are escaped."""
    category = unicodedata.category(found[0])
    is_hidden = category[0] == "C" or category in ("Zl", "Zp")
    return json.dumps(found[0])[1:-1] if is_hidden else found[0]
