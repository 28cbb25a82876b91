"""The Spark session's arithmetic, without Spark."""

from leanops.adapters.iceberg.session import ROWS_PER_ARROW_BATCH
from leanops.ports.delivery import MAX_RECORD_BYTES

LARGEST_VECTOR = 1 << 30
"""Arrow for Java doubles a full vector, and cannot double this one: its sizes are 32-bit numbers."""


def test_an_arrow_batch_of_the_largest_records_fits_into_a_vector_with_room_to_spare() -> None:
    assert ROWS_PER_ARROW_BATCH * MAX_RECORD_BYTES <= LARGEST_VECTOR // 2
    assert ROWS_PER_ARROW_BATCH >= 500
