"""The lean JSON gives and takes exactly what the ordinary module does."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol import compact_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON)
def test_the_same_as_the_ordinary_module(value: object) -> None:
    packed = compact_json.encode(value)
    assert packed == json.dumps(value, separators=(",", ":")).encode()
    assert compact_json.decode(packed) == json.loads(packed) == value


@given(JSON)
def test_what_others_write_is_understood(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=2)):
        try:
            data = text.encode()
        except UnicodeEncodeError:
            continue  # half of a surrogate pair, which only escapes can spell
        assert compact_json.decode(data) == value


@given(st.binary(max_size=100))
def test_garbage_is_a_value_error(data: bytes) -> None:
    try:
        value = compact_json.decode(data)
    except ValueError:
        return
    expected = json.loads(data)
    assert value == expected or (isinstance(value, float) and math.isnan(value))


@pytest.mark.parametrize("depth", [100_000])
def test_absurd_depth_is_a_value_error(depth: int) -> None:
    with pytest.raises(ValueError, match="JSON"):
        compact_json.decode(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object()])
def test_what_does_not_fit_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        compact_json.encode({"x": value})


def test_garbage_is_a_value_error_also_where_nobody_has_imported_json() -> None:
    """As in the runner: the accelerator's own error is in a module that is not there."""
    source = str(Path(compact_json.__file__).parents[2])
    probe = (
        f"import sys; sys.path.insert(0, {source!r}); from holdfast.protocol import compact_json\n"
        "assert 'json' not in sys.modules\n"
        "for data in (b'{\"a\"', b'[1', b'\"x', b'{\"a\":', b'nul', b''):\n"
        "    try: compact_json.decode(data)\n"
        "    except ValueError: continue\n"
        "    raise AssertionError(data)\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", probe], check=True, timeout=60)
