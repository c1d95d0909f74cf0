"""A parcel goes inside a message up to the limit, and as a file beyond it."""

from pfl_client.trainer_process.large_parcels import MESSAGE_LIMIT, goes_as_file


def test_the_limit_itself_still_fits() -> None:
    """One byte more does not."""
    assert not goes_as_file(MESSAGE_LIMIT)
    assert goes_as_file(MESSAGE_LIMIT + 1)
