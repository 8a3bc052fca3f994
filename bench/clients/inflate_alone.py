"""Inflating alone, with each library: the minimum work of a client of the compressed feed. There is no connection."""

import zlib
from time import perf_counter_ns as now

import isal.isal_zlib
import zlib_ng.zlib_ng

from bench.clients.payloads import ticks

REQUIRES = "zlib-ng"


def inflate(module, size, count, rounds):
    compressor = zlib.compressobj(wbits=-15)
    messages = ticks(size, count)
    payloads = [compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH) for message in messages]
    decompress = module.decompressobj(wbits=-15).decompress
    samples = []
    for _ in range(rounds):
        start = now()
        for payload in payloads:
            last = decompress(payload)
        samples.append(now() - start)
        if last != messages[-1]:
            raise ValueError(f"the data differs from the compressed data: {last[:40]!r}")
    return samples


def deflate_zlib(url, size, count, rounds, ssl=None):
    return inflate(zlib, size, count, rounds)


def deflate_zlib_ng(url, size, count, rounds, ssl=None):
    return inflate(zlib_ng.zlib_ng, size, count, rounds)


def deflate_isal(url, size, count, rounds, ssl=None):
    return inflate(isal.isal_zlib, size, count, rounds)
