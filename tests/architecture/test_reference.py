"""What the reference says of the code is what the code says of itself."""

import pytest

from docs.generate import PAGES, REFERENCE


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    written = (REFERENCE / page).read_text(encoding="utf-8")
    assert written == PAGES[page](), "run: python docs/generate.py"
