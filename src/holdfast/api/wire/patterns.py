"""What a text must look like, in words: a regular expression is no answer to a person."""

from collections.abc import Mapping
from typing import Final

from holdfast.sessions.copies.names import PATTERN as KEPT_PATTERN
from holdfast.vocabulary.thread_keys import KEY_PATTERN

KEY_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
KEPT_NAME: Final = f"^{KEPT_PATTERN}$"
THREAD_KEY: Final = f"^{KEY_PATTERN}$"
KEY_PREFIX: Final = r"^[A-Za-z0-9._:@+=~-]+$"
MESSAGE_ID: Final = r"^[!-.0-~]+$"
COMMAND_NAME: Final = r"^[!-~]+$"
GIVEN_ID: Final = r"^[A-Za-z0-9_-]{1,64}$"
SHELL_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
FILE_MODE: Final = r"^(0o?)?[0-7]{3,4}$"
SIGNAL: Final = r"^(SIG)?[A-Z]{2,7}[0-9]?$"
THREAD_CURSOR: Final = r"^[0-9.e+-]{1,32}:[A-Za-z0-9_]{1,64}$"
MESSAGE_CURSOR: Final = r"^[0-9]{1,18}$"

_FIRST = "the first a letter or a digit"
_CURSOR = "the next_cursor of the page before"

WORDS: Final[Mapping[str, str]] = {
    KEY_NAME: f"1 to 64 letters, digits and . _ @ - ({_FIRST})",
    KEPT_NAME: f"1 to 63 letters, digits and . _ - ({_FIRST})",
    THREAD_KEY: f"letters, digits and . _ : @ + = ~ - ({_FIRST})",
    KEY_PREFIX: "letters, digits and . _ : @ + = ~ -",
    MESSAGE_ID: "printable ASCII characters without spaces and slashes",
    COMMAND_NAME: "printable ASCII characters without spaces",
    GIVEN_ID: "1 to 64 letters, digits, _ and -",
    SHELL_NAME: f"1 to 64 letters, digits and _ . - ({_FIRST})",
    FILE_MODE: "three or four octal digits, such as 644",
    SIGNAL: "the name of a signal, such as TERM",
    THREAD_CURSOR: _CURSOR,
    MESSAGE_CURSOR: _CURSOR,
}
