"""Spoken attachments: an audio file that comes with a message is written down, for agents only read.

The engine is an extra. Where there is none the turn runs all the same: with the file, and with a word of why nobody
wrote it down and how to change that, for the agent and for the user.
"""

from html import escape
from pathlib import Path, PurePath
from typing import Final, Protocol

from holdfast.errors import NotTranscribed

AUDIO: Final = frozenset(
    {
        *(".aac", ".aif", ".aiff", ".amr", ".flac", ".m4a", ".mka", ".mp3"),
        *(".oga", ".ogg", ".opus", ".wav", ".weba", ".wma"),
    }
)
"""How the names of audio files end."""
MOST_TEXT: Final = 200_000
"""Characters: some twenty hours of speech."""


class Transcriber(Protocol):
    async def transcribe(self, path: Path, owner: str, /) -> str:
        """Return what is said in an audio file of the host, which is this owner's. In the end it raises
        ``NotTranscribed``, and nothing else."""
        ...


class NoTranscriber:
    """Where none is configured."""

    async def transcribe(self, _path: Path, _owner: str, /) -> str:
        raise NotTranscribed(
            "no speech recognition is set up: install holdfast[audio], and set transcription_model to the directory "
            "of a Whisper model"
        )


def is_audio(name: str) -> bool:
    return PurePath(name).suffix.lower() in AUDIO


def spoken(path: str, text: str) -> str:
    """Return what was said, for the prompt. It must not look like the end of what was said."""
    words = text.strip()[:MOST_TEXT].replace("</audio", "< /audio")
    return f'<audio-transcript file="{escape(path)}">\n{words or "(nothing is said in it)"}\n</audio-transcript>'


def unheard(path: str, error: NotTranscribed) -> str:
    return f'<audio-attachment file="{escape(path)}">\nIt was not transcribed: {error.message}\n</audio-attachment>'
