from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Samples of the field's data sets, where the checkout has them beside it."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data samples in {SHARED}")
    return SHARED
