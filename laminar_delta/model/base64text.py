"""Base64 as the readers of these documents take it: standard alphabet, padded, canonical, nothing else in between.

The standard library's strict mode still lets `QR==` through, whose unused bits are not zero; two texts would then mean the
same bytes.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64


def encode_base64(data: bytes | bytearray | memoryview) -> str:
    """Encode without line breaks."""
    return b2a_base64(data, newline=False).decode("ascii")


def decode_base64(text: str) -> bytes:
    """Decode, accepting only what `encode_base64` writes.

    Raises:
        ValueError: Anything else; the text says what is wrong.
    """
    try:
        data = a2b_base64(text)
    except Base64Error as error:
        raise ValueError(f"text that does not decode ({error})") from None
    except ValueError:
        raise ValueError("text with non-ASCII characters") from None
    # The decoder skips foreign characters and ignores unused bits; encoding again shows both.
    if encode_base64(data) != text:
        raise ValueError("text with foreign characters, wrong padding or unused bits that are not zero")
    return data
