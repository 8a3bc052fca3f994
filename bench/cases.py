"""The cases that the suite measures. A case is one cell of a table: a work, a size and a placement.

Request-response on one core measures every cycle of the client; on two cores it also measures the time to wake a
process. Batches and floods run on two cores, because there the client is the slower end and sets the pace.
"""

from dataclasses import dataclass, replace

CORES = {"same": "client and server on one core", "two": "client and server on two cores"}


@dataclass(frozen=True)
class Case:
    function: str
    size: int = 0
    count: int = 1
    rounds: int = 1000
    warmup: int = 100
    cores: str = "same"
    loop: str = "uvloop"
    how: str = "bytes"
    tls: bool = False
    after_message: bool = False

    @property
    def title(self):
        work = {
            "request_response": f"request-response, {size_name(self.size)}",
            "batch": f"batch of {self.count}, {size_name(self.size)}",
            "flood": f"receiving {size_name(self.size)} text frames as {self.how}",
            "deflate": f"receiving compressed updates of {self.size} B as str",
            "connect": "opening a connection",
            "idle": f"idle connection, {'after its first message' if self.after_message else 'never used'}",
        }[self.function]
        loop = "" if self.loop == "uvloop" else f", {self.loop}"
        return f"{work}{', TLS' if self.tls else ''}{loop}, {CORES[self.cores]}"

    @property
    def scale(self):
        """The divisor that converts a result in nanoseconds (KB for memory) to the unit below."""
        return {
            "request_response": 1000,
            "batch": 1000 * self.count,
            "flood": self.count,
            "deflate": self.count,
            "connect": 1000,
        }.get(self.function, 1)

    @property
    def unit(self):
        units = {
            "request_response": "µs",
            "batch": "µs/message",
            "flood": "ns/message",
            "deflate": "ns/message",
            "connect": "µs",
        }
        return units.get(self.function, "KB")

    def of_size(self, size):
        """The same work at another size, with a number of rounds that suits the size."""
        if size == self.size:
            return self
        usual = {"request_response": request_response, "batch": batch, "flood": flood, "deflate": deflate}[
            self.function
        ](size)
        return replace(self, size=size, count=usual.count, rounds=usual.rounds, warmup=usual.warmup)

    def shorter(self, factor):
        return replace(
            self,
            count=self.count if self.function == "batch" else max(1, self.count // factor),
            rounds=max(10, self.rounds // factor),
            warmup=max(3, self.warmup // factor),
        )


def size_name(size):
    if size >= 1024 * 1024:
        return f"{size // (1024 * 1024)} MiB"
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def request_response(size, **options):
    """Long frames have fewer rounds: those of 64 KiB and more move as many bytes as 4,000 of 64 KiB."""
    rounds = min(4000, max(60, 4000 * 65536 // max(size, 1)))
    return Case("request_response", size, rounds=rounds, warmup=max(20, rounds // 8), **options)


def batch(size, cores="two", **options):
    rounds = 300 if size <= 4096 else 100
    return Case("batch", size, count=100, rounds=rounds, warmup=rounds // 10, cores=cores, **options)


def flood(size, cores="two", **options):
    count = min(50_000, 50_000_000 // size)
    return Case("flood", size, count=count, rounds=20, warmup=3, cores=cores, **options)


def deflate(size, cores="two", **options):
    return Case("deflate", size, count=2000, rounds=60, warmup=5, cores=cores, **options)


def connect(**options):
    return Case("connect", rounds=300, warmup=30, **options)


def idle(**options):
    return Case("idle", count=2000, rounds=1, warmup=0, cores="two", **options)
