"""Numbers and their nouns, as messages have them."""


def counted(number: int, noun: str) -> str:
    """`1 event`, `2 events`, `2 batches`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"
