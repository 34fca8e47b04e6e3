"""What went wrong with a beat, in words that say how to mend it."""

from __future__ import annotations

import re
import socket
import ssl

from contract.producer.connection import Address, Answer

# Said on its own even while beats fail anyway: the host has to mend it, not wait.
REFUSALS = {
    401: "its key is refused (401 {detail}): set VOICEGW_API_KEY or api_key to one that is active; "
    "`collector keys create --tenant T --scopes ingest` mints it",
    403: "its key may not beat (403 {detail}): it needs the scope ingest; "
    "`collector keys create --tenant T --scopes ingest` mints one that has it",
    422: "its beat is refused (422 {detail}): mend what register_worker was called with",
}


def kind_of(status: int | None) -> str:
    """What the host is told once of: each refusal by itself, all else together."""
    return str(status) if status in REFUSALS else "failing"


def of_answer(answer: Answer, address: Address) -> str:
    detail = _plain(answer.body.get("detail"))
    if answer.status in REFUSALS:
        return REFUSALS[answer.status].format(detail=detail).replace(" )", ")")
    if answer.location and 300 <= answer.status < 400:
        return (
            f"{address} answers {answer.status} and points to {_plain(answer.location)}: set that"
        )
    if answer.status == 404:
        return f"{address} is not there (404): VOICEGW_COLLECTOR_URL is wrong, or no collector's"
    return f"{address} answers {answer.status} {detail}".strip()


def of_error(error: Exception, address: Address) -> str:
    place = f"{address.scheme}://{address.authority}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _plain(error.verify_message)
        return (
            f"the certificate of {place} is not trusted ({why}): SSL_CERT_FILE may name its issuer"
        )
    if isinstance(error, socket.gaierror):
        return f"the name of {place} is not known: {_plain(error.strerror)}"
    if isinstance(error, TimeoutError):
        return f"{place} gives no answer in time"
    words = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"{place} can't be reached: {_plain(words) or type(error).__name__}"


def _plain(text: object) -> str:
    """One short printable line."""
    line = re.sub(r"\s+", " ", str(text if text is not None else "")).strip()
    return "".join(char for char in line if char.isprintable())[:200]
