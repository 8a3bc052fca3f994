"""The cases that the suite measures. A case is one cell of a table: a work, a size and a placement.

Request-response on one core measures every cycle of the client; on two cores it also measures the time to wake a
process. Batches and floods run on two cores, because there the client is the slower end and sets the pace.
"""

from dataclasses import dataclass, fields, replace

from bench.workloads import trips

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
BURSTS = 30  # of each contender in a repeat: the shorter they are, the closer in time are two that a ratio compares
LEAST = 10  # round trips of a burst, so that its median means something


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
        """The number of bursts of one process, which takes turns with the other contenders."""
        if self.function in WHOLE:
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
        made = {"request_response": request_response, "one_way": one_way, "batch": batch, "flood": flood}
        if size == self.size or self.function not in made:
            return replace(self, size=size)
        usual = made[self.function](size)
        kept = ("count", "rounds", "warmup", "most_bursts")
        return replace(self, size=size, **{name: getattr(usual, name) for name in kept})

    def shorter(self, factor):
        counted = self.function in ("flood", "deflate", "objects", "queued")
        return replace(
            self,
            count=max(1, self.count // factor) if counted or self.function == "idle" else self.count,
            rounds=max(LEAST, self.rounds // factor),
            warmup=max(3, self.warmup // factor),
            most_bursts=min(self.most_bursts, max(LEAST, BURSTS // factor)),
        )


def size_name(size):
    for unit, name in ((1024 * 1024, "MiB"), (1_000_000, "MB"), (1024, "KiB"), (1000, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def request_response(size, **options):
    return Case("request_response", size, **trips_of(size, 4000), **options)


def one_way(size, cores="two", **options):
    return Case("one_way", size, **trips_of(size, 3000), cores=cores, **options)


def trips_of(size, rounds):
    """The round trips of a case. Those of more than 16 KiB move as many bytes as all of 16 KiB, in fewer bursts. The
    first on a connection are slower, so each burst has LEAST of them, and half as many to warm up."""
    rounds = min(rounds, max(6 * LEAST, rounds * 16384 // max(size, 1)))
    bursts = min(BURSTS, rounds // LEAST)
    return {"rounds": rounds, "warmup": max(bursts * LEAST // 2, rounds // 8), "most_bursts": bursts}


def batch(size, cores="two", **options):
    rounds = 300 if size <= 4096 else BURSTS
    return Case("batch", size, count=100, rounds=rounds, warmup=rounds, cores=cores, **options)


def window(size, cores="two", **options):
    """A burst has several windows, since none of its messages waits before the first window is full."""
    return Case("window", size, count=100, rounds=12_000, warmup=3000, cores=cores, **options)


def flood(size, cores="two", **options):
    """Long ones, beside which the request and the first wakeup are nothing."""
    count = min(20_000, 5_000_000 // size)
    return Case("flood", size, count=count, rounds=12, warmup=12, cores=cores, **options)


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
    """Every burst has the same sizes, the first of the sequence."""
    bursts = min(BURSTS, rounds // 50)
    warmup = max(bursts, rounds // 30)
    return Case("varied", low, rounds=rounds, warmup=warmup, upto=high, most_bursts=bursts)


def fan_in(count, size=512, cores="two", **options):
    """A round has a thousand messages at least."""
    return Case("fan_in", size, count=count, rounds=LEAST, warmup=LEAST, cores=cores, **options)


def answers(rate, seconds, size=512):
    """The open loop. It has two cores, because the server spins to keep its schedule."""
    return Case("answers", size, rounds=rate * seconds, warmup=rate // 4, cores="two", rate=rate)


def connect(**options):
    return Case("connect", rounds=300, warmup=30, **options)


def idle(count=2000, **options):
    return Case("idle", count=count, rounds=1, warmup=0, cores="two", **options)


def primitive(how, loop):
    return Case("primitive", rounds=10_000, warmup=1000, how=how, loop=loop)
