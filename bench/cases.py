"""The cases that the suite measures. A case is one cell of a table: a work, a size and a placement.

Request-response on one core measures every cycle of the client; on two cores it also measures the time to wake a
process. Batches and floods run on two cores, because there the client is the slower end and sets the pace.
"""

from dataclasses import dataclass, fields, replace

from bench.works import trips

CORES = {"same": "client and server on one core", "two": "client and server on two cores"}
LOOPS = ("uvloop", "asyncio", "rloop", "uringcore")
SERVERS = ("C", "tungstenite", "picows", "websockets")

# Each work: its words in a title, the unit of its results, and what divides nanoseconds (KB for memory) to that unit.
WORKS = {
    "request_response": ("request-response, {size}", "µs", lambda case: 1000),
    "one_way": ("request-response in its two ways, {size}", "µs", lambda case: 1000),
    "batch": ("batch of {count}, {size}", "µs/message", lambda case: 1000 * case.count),
    "window": ("sliding window of {count}, {size}", "µs", lambda case: 1000),
    "flood": ("receiving {size} frames as {how}", "ns/message", lambda case: case.count),
    "deflate": ("receiving compressed updates of {size} as str", "ns/message", lambda case: case.count),
    "objects": ("updates of {size} to objects by {how}", "ns/message", lambda case: case.count),
    "queued": ("{count} messages of {size} that have arrived", "ns/message", lambda case: case.count),
    "errors": ("recv() on a closed connection", "ns", lambda case: 1),
    "mixed": ("nine round trips of {size} to one error", "µs", lambda case: 1000),
    "varied": ("{rounds} requests of {size} to {upto}", "s", lambda case: 1e9 / case.rounds),
    "fan_in": (
        "{count} connections, {size}",
        "µs/message",
        lambda case: 1000 * case.count * trips(case.count),
    ),
    "answers": ("answering {rate} ticks of {size} a second", "µs", lambda case: 1000),
    "connect": ("opening a connection", "µs", lambda case: 1000),
    "idle": ("{count} idle connections, {used}", "KB", lambda case: 1),
    "primitive": ("{how}", "µs", lambda case: 1000),
}

# The works that one process does in one go: those that have no rounds, keep a schedule, or have one contender.
WHOLE = ("idle", "answers", "primitive")
MANY = 100  # connections, which take longer to open than to use
BURSTS = 30  # of each contender in a repeat: the shorter they are, the closer in time are two that a ratio compares


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
    upto: int = 0
    rate: int = 0
    server: str = "C"
    most_bursts: int = BURSTS

    @property
    def work(self):
        """The title without the placement."""
        used = "after a message" if self.after_message else "never used"
        words = {field.name: getattr(self, field.name) for field in fields(self)}
        words |= {"size": size_name(self.size), "upto": size_name(self.upto), "used": used}
        return WORKS[self.function][0].format(**words) + (", TLS" if self.tls else "")

    @property
    def title(self):
        loop = "" if self.loop == "uvloop" else f", {self.loop}"
        server = "" if self.server == "C" else f", {self.server} server"
        cores = "" if self.function == "primitive" else f", {CORES[self.cores]}"
        return f"{self.work}{loop}{server}{cores}"

    @property
    def key(self):
        """A name for files and test ids. Two cases of the suite have different ones."""
        parts = [self.function, self.size, self.upto and f"to{self.upto}"]
        parts += [self.count > 1 and f"x{self.count}", self.rate and f"{self.rate}hz"]
        parts += [self.function == "varied" and f"n{self.rounds}", self.how != "bytes" and self.how]
        parts += [self.tls and "tls", self.after_message and "used", self.loop != "uvloop" and self.loop]
        parts += [self.server != "C" and self.server, self.cores == "two" and "two"]
        return "-".join(str(part) for part in parts if part)

    @property
    def unit(self):
        return WORKS[self.function][1]

    @property
    def scale(self):
        """The divisor that converts a result in nanoseconds (KB for memory) to the unit."""
        return WORKS[self.function][2](self)

    @property
    def point(self):
        """The figure that stands for a run: the usual round, or the mean of rounds that are meant to differ."""
        return "mean" if self.function in ("varied", "mixed") else "p50"

    @property
    def bursts(self):
        """How often one process runs a part of the rounds, in turn with the other contenders."""
        if self.function in WHOLE or (self.function == "fan_in" and self.count >= MANY):
            return 1
        return min(self.most_bursts, self.rounds)

    @property
    def burst(self):
        """The same with the rounds of one burst."""
        warmup = max(1, self.warmup // self.bursts) if self.warmup else 0
        return replace(self, rounds=self.rounds // self.bursts, warmup=warmup)

    @property
    def messages(self):
        """The messages, or operations, of one round."""
        per_round = {"fan_in": trips(self.count) * self.count, "window": 1, "idle": 1}
        return per_round.get(self.function, self.count)

    def of_size(self, size):
        """The same work at another size, with a number of rounds that suits the size."""
        made = {"request_response": request_response, "batch": batch, "flood": flood, "deflate": deflate}
        if size == self.size or self.function not in made:
            return replace(self, size=size)
        usual = made[self.function](size)
        return replace(self, size=size, count=usual.count, rounds=usual.rounds, warmup=usual.warmup)

    def shorter(self, factor):
        counted = self.function in ("flood", "deflate", "objects", "queued")
        return replace(
            self,
            count=max(1, self.count // factor) if counted or self.function == "idle" else self.count,
            rounds=max(10, self.rounds // factor),
            warmup=max(3, self.warmup // factor),
            most_bursts=max(10, BURSTS // factor),
        )


def size_name(size):
    for unit, name in ((1024 * 1024, "MiB"), (1_000_000, "MB"), (1024, "KiB"), (1000, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def request_response(size, **options):
    """Long frames have fewer rounds: those of more than 16 KiB move as many bytes as 4,000 of 16 KiB."""
    rounds = min(4000, max(60, 4000 * 16384 // max(size, 1)))
    return Case("request_response", size, rounds=rounds, warmup=max(20, rounds // 8), **options)


def one_way(size, cores="two", **options):
    return Case("one_way", size, rounds=3000, warmup=300, cores=cores, **options)


def batch(size, cores="two", **options):
    rounds = 300 if size <= 4096 else BURSTS
    return Case("batch", size, count=100, rounds=rounds, warmup=rounds, cores=cores, **options)


def window(size, cores="two", **options):
    """A burst has several windows, since none of its messages waits before the first window is full."""
    return Case("window", size, count=100, rounds=12_000, warmup=3000, cores=cores, **options)


def flood(size, cores="two", **options):
    count = min(5000, 1_250_000 // size)
    return Case("flood", size, count=count, rounds=BURSTS, warmup=BURSTS, cores=cores, **options)


def deflate(size, cores="two", **options):
    return Case("deflate", size, count=1000, rounds=BURSTS, warmup=BURSTS, cores=cores, **options)


def objects(size, how, **options):
    return Case("objects", size, count=1000, rounds=BURSTS, warmup=BURSTS, how=how, cores="two", **options)


def queued(size=128):
    return Case("queued", size, count=10_000, rounds=15, warmup=15, cores="two")


def errors():
    return Case("errors", rounds=10_000, warmup=1000)


def mixed(size=1024):
    return Case("mixed", size, rounds=6000, warmup=600)


def varied(low, high, rounds):
    return Case("varied", low, rounds=rounds, warmup=max(BURSTS, rounds // 30), upto=high)


def fan_in(count, size=512, cores="two", **options):
    rounds = BURSTS if count < MANY else 10
    return Case("fan_in", size, count=count, rounds=rounds, warmup=rounds, cores=cores, **options)


def answers(rate, seconds, size=512):
    """The open loop. It has two cores, because the server spins to keep its schedule."""
    return Case("answers", size, rounds=rate * seconds, warmup=rate // 4, cores="two", rate=rate)


def connect(**options):
    return Case("connect", rounds=300, warmup=30, **options)


def idle(count=2000, **options):
    return Case("idle", count=count, rounds=1, warmup=0, cores="two", **options)


def primitive(how, loop):
    return Case("primitive", rounds=10_000, warmup=1000, how=how, loop=loop)
