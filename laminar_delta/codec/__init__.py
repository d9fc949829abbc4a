"""Bytes in and out of the forms they are stored in: checksums, LZ4 blocks, LCB1 batches and blocks of operator state.

A codec here is a pure function of bytes. It opens nothing, knows no table and no pipeline, and meets input that may
be damaged or hostile: every decoder gives a value, `FormatError` or `CorruptionError`, within memory it states
beforehand.
"""

from laminar_delta.codec.blocks import BLOCK_BYTES, Block, BlockCutter
from laminar_delta.codec.buffers import BytesLike, Span, flat_view, runs
from laminar_delta.codec.checksum import XXH3_PREFIX, StreamDigest, block_hash, block_name, crc32c, verify, xxh3_hex
from laminar_delta.codec.lcb1 import (
    MAX_BATCH_BYTES,
    BatchEntry,
    BatchHeader,
    decode_batch,
    encode_batch,
    parse_header,
)
from laminar_delta.codec.lz4block import (
    MAX_EXPANSION,
    MAX_RAW_BYTES,
    compress_block,
    compress_prefixed,
    decompress_prefixed,
    decompress_recycling,
)
from laminar_delta.codec.sources import ReadableFile, StateSource, check_source, is_buffer, is_read_once, is_used_up

__all__ = [
    "BytesLike",
    "Span",
    "flat_view",
    "runs",
    "XXH3_PREFIX",
    "StreamDigest",
    "block_hash",
    "block_name",
    "crc32c",
    "verify",
    "xxh3_hex",
    "MAX_EXPANSION",
    "MAX_RAW_BYTES",
    "compress_block",
    "compress_prefixed",
    "decompress_prefixed",
    "decompress_recycling",
    "MAX_BATCH_BYTES",
    "BatchEntry",
    "BatchHeader",
    "decode_batch",
    "encode_batch",
    "parse_header",
    "BLOCK_BYTES",
    "Block",
    "BlockCutter",
    "ReadableFile",
    "StateSource",
    "check_source",
    "is_buffer",
    "is_read_once",
    "is_used_up",
]
