"""All tests; helpers assert too, and a failed assertion of theirs shows both sides."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{entry.stem}" for entry in Path(__file__).parent.iterdir()))
