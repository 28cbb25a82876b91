"""Personal values: seals are HMACs, masks show four characters."""

import hashlib
import hmac

import pyarrow as pa
import pytest

from leanops.transforms.mask import masked, sealed, sealed_once

TEXTS = ["", "'", "it's", "\n\r\t\x00", "é😀", "\u2028", "a" * 64]


@pytest.mark.parametrize("secret", [b"k", b"a key for tests", b"x" * 64, b"y" * 65, bytes(range(256))])
def test_a_seal_is_the_hmac_and_null_stays_null(secret: bytes) -> None:
    seals = [hmac.new(secret, text.encode(), hashlib.sha256).hexdigest() for text in TEXTS]
    found = sealed(pa.array([*TEXTS, None, *TEXTS]), secret)
    assert found.to_pylist() == [*seals, None, *seals]


def test_what_is_sealed_already_is_not_sealed_again() -> None:
    secret = b"a key for tests"
    (seal,) = sealed(pa.array(["text"]), secret).to_pylist()
    almost = f"{seal}\n"
    found = sealed_once(pa.array([seal, "text", None, almost]), secret).to_pylist()
    assert found == [seal, seal, None, *sealed(pa.array([almost]), secret).to_pylist()]


def test_a_mask_shows_the_last_four_characters_of_a_longer_text() -> None:
    found = masked(pa.array(["10115", "1011", "1", "", "a\nb12345", "é😀é😀é", None]))
    assert found.to_pylist() == ["*0115", "****", "*", "", "****2345", "*😀é😀é", None]
