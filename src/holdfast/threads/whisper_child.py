"""The process that listens: ``python whisper_child.py MODEL FILE`` prints what is said in a file, a line per pause."""

import importlib
import sys


def main(model: str, path: str) -> None:
    engine = importlib.import_module("faster_whisper")  # an extra: it need not be there when types are checked
    whisper = engine.WhisperModel(model, device="auto", compute_type="default", local_files_only=True)
    segments, _info = whisper.transcribe(path, vad_filter=False)
    for segment in segments:
        sys.stdout.write(segment.text.strip() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
