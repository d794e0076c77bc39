"""The conformance suite is outside the tests; pytest is told to explain its asserts too."""

import pytest

pytest.register_assert_rewrite("holdfast.agents.conformance")
