"""Makes error answers, in the dialect of the request, for requests that no provider has answered."""

from aiohttp import web

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.models.asking.outcome import Failed, Unanswered
from holdfast.broker.models.limits.gate import Refusal
from holdfast.broker.models.providers import errors
from holdfast.broker.models.providers import headers as passing
from holdfast.vocabulary.models import Wire

_KEY = "it does not accept the key that the daemon has for it; look at its configuration (providers, key)"
_ABOUT_THE_ACCOUNT = {
    401: ("provider_refused", _KEY),
    402: ("provider_unpaid", "the account that the daemon has there is empty; top it up, or choose another model"),
    403: ("provider_refused", f"{_KEY}, and whether that key may use this model"),
    429: ("provider_busy", "it is asked too much, by us or by others; try again later, or choose another model"),
}
"""In our own words: the provider's may name the account."""
_ITS_OWN_FAULT = "has a problem of its own; try again later, or choose another model"


def refused(wire: Wire, refusal: Refusal) -> web.Response:
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    body = DIALECTS[wire].error_body(refusal.status, refusal.message, refusal.code)
    return web.json_response(body, status=refusal.status, headers=headers)


def _retry_after(failed: Failed) -> int | None:
    told = next((value for name, value in failed.headers if name.lower() == "retry-after"), "")
    return int(told) if told.isdecimal() else None


def give_up(wire: Wire, outcome: Unanswered) -> web.Response:
    """Answer with the last provider's own error, unless it is about our translation, and with who was not asked."""
    asked, failures, wait = outcome.asked, outcome.failures, outcome.wait_seconds
    left_out = ", ".join(f"{one.candidate.model.id} ({one.why})" for one in outcome.left_out)
    note = f"; not asked, since they cannot be told all of it: {left_out}" if left_out else ""
    if not failures and any(one.candidate is asked for one in outcome.left_out):
        message = f"{asked.provider.name} does not speak this dialect, and not all of the question can be translated"
        return refused(wire, Refusal(400, "cannot_translate", message + note))
    if not failures:
        message = f"{asked.provider.name} has failed again and again, and is left alone; try again in {wait} s"
        return refused(wire, Refusal(503, "provider_failing", message + note, wait))
    last = next((one for one in reversed(failures) if not one.misunderstood), failures[-1])
    if last.status in _ABOUT_THE_ACCOUNT:
        code, why = _ABOUT_THE_ACCOUNT[last.status]
        return refused(wire, Refusal(last.status, code, f"{last.reason}: {why}{note}", _retry_after(last)))
    if last.status >= 500:
        note = f"{note}; {last.candidate.provider.name} {_ITS_OWN_FAULT}"
    if last.status and errors.message_of(last.body):
        body = errors.with_note(last.body, note) if note else last.body
        return web.Response(status=last.status, body=body, headers=passing.answered(last.headers))
    status = last.status or (504 if last.timed_out else 502)
    return refused(wire, Refusal(status, "provider_failed", last.reason + note))
