"""The page of all keys says what the schema says."""

from tools import configuration


def test_the_page_is_up_to_date() -> None:
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), (
        "python tools/configuration.py"
    )


def test_control_every_key_is_on_the_page() -> None:
    page = configuration.page()
    assert "| `max_batch_seconds` | `32.0` | number, > 0 | Seconds of audio in a batch" in page
    assert "| `chunk_sizes` | `[4, 8, 16, 25]` | a list of integers, ≥ 1, ≤ 3000 |" in page
    assert "- `{kind: prefix_beam, beam: 10," in page
