"""URLs as people may see them: where something is, and nothing that opens it."""

from __future__ import annotations

import re

_PLACE = r"(?P<place>(?:[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:/[^@?#]*)?)"
_SCHEME = r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
_WITH_USER = re.compile(rf"{_SCHEME}[^@]*@{_PLACE}(?:[?#][^@]*)?")
_WITHOUT_USER = re.compile(rf"{_SCHEME}{_PLACE}(?:[?#].*)?")
_FILE = re.compile(r"(sqlite:///[^?#]*)(?:[?#].*)?")


def without_secrets(url: str) -> str:
    """The URL without user, password and options.

    What a password has of @ / ? # can make a URL mean two things, and one of them would show a
    part of the password: of such a URL, and of one that is none, only `(set)` is shown.
    """
    if file := _FILE.fullmatch(url):
        return file[1]
    with_user, without_user = _WITH_USER.fullmatch(url), _WITHOUT_USER.fullmatch(url)
    if with_user and not without_user:
        return f"{with_user['scheme']}://…@{with_user['place']}"
    if without_user and not with_user:
        return f"{without_user['scheme']}://{without_user['place']}"
    return "(set)"
