"""The nonces of frames; how frames are sealed and opened, `test_parcels.py` looks at."""

from pfl_common.sealing.frame_cipher import make_nonce


def test_a_nonce_is_direction_number_and_end() -> None:
    """Seven bytes, four, one: twelve."""
    assert b"pfl1\0up\x00\x00\x01\x02\x00" == make_nonce("up", 258, last=False)
    assert b"pfl1\0dn\x00\x00\x01\x02\x01" == make_nonce("down", 258, last=True)
