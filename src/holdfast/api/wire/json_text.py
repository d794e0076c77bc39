"""One text of a JSON document, read as it arrives: a file's content may be a hundred megabytes of it."""

import codecs
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # it has been there since Python 2.6

_WHOLE = re.compile(r'[^"\\]*(?:\\(?:[^u]|u.{4})[^"\\]*)*', re.DOTALL)
"""As far as it goes without a quote that ends the text, or an escape that is cut in two."""
_FIRST_HALF = re.compile("[\ud800-\udbff]$")


class JsonString:
    """Feed it what follows the opening quote. Raises ``ValueError`` where that is no JSON.

    ``rest`` is None until the closing quote has come, then what followed it.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._raw = ""
        self._half = ""
        self.rest: bytes | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the text is whole now, as UTF-8."""
        raw = self._raw + self._decode(chunk)
        found = _WHOLE.match(raw)
        assert found is not None  # it matches nothing, too
        end = found.end()
        text = self._half + scanstring(raw[:end] + '"', 0, True)[0]
        if raw[end : end + 1] == '"':
            left, _ = self._decode.__self__.getstate()  # type: ignore[attr-defined]  # bytes of half a character
            self.rest = raw[end + 1 :].encode() + left
            self._raw = self._half = ""
        else:
            self._raw = raw[end:]
            self._half = text[-1:] if _FIRST_HALF.search(text) else ""
            text = text[: len(text) - len(self._half)]
        if self._raw and not self._raw.startswith("\\"):
            raise ValueError("not JSON")
        return _whole_characters(text).encode()


def _whole_characters(text: str) -> str:
    """Two halves that came in two pieces are one character."""
    if text and "\ud800" <= text[0] <= "\udbff":
        return text[:2].encode("utf-16", "surrogatepass").decode("utf-16") + text[2:]
    return text
