import json
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test reads or writes the user's own cache."""
    monkeypatch.setenv("SLEUTH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "benchmarks"


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"needs the data samples in {SHARED}")
    return SHARED


@pytest.fixture
def flashrag(tmp_path):
    """A folder in FlashRAG's layout: two benchmarks, ids that only count within a split."""
    rows = [
        {"id": "test_0", "question": "who wrote it?", "golden_answers": ["Ann", "Ann B"]},
        {"id": "test_1", "question": "when?", "golden_answers": ["1990"]},
    ]
    hotpot = {
        "id": "dev_0",
        "question": "Same nationality?",
        "golden_answers": ["yes"],
        "metadata": {
            "type": "comparison",
            "level": "hard",
            "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 0]},
            "context": {"title": ["A", "B"], "content": [["a."], ["b."]]},
        },
    }
    root = tmp_path / "FlashRAG_datasets"
    for name, split, content in (("nq", "test", rows), ("hotpotqa", "dev", [hotpot])):
        (root / name).mkdir(parents=True)
        (root / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return root
