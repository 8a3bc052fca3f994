"""The plots of docs/benchmarks.md, as SVG, from the data of the reports and from nothing else."""

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt

from bench.measure.resume_store import slug
from bench.report import first_page
from bench.report.colours import COLOURS
from bench.suite.cases import size_name
from wsfast.cli.bench import comparing


def named(results, section):
    return [result for result in results if result["section"] == section]


def bars(axes, results):
    """A group of bars for each size: each contender's ratio to the floor, as in the tables, with its interval. A bar
    that is noise is hatched."""
    names = [name for name in COLOURS if any(name in result["to_floor"] for result in results)]
    width = 0.8 / max(1, len(names))
    floor = next((ratio["to"] for result in results for ratio in result["to_floor"].values()), "the floor")
    for number, name in enumerate(names):
        found = [(at, r["to_floor"][name]) for at, r in enumerate(results) if name in r["to_floor"]]
        places = [at + number * width for at, _ in found]
        middles = [ratio["median"] for _, ratio in found]
        ends = [ratio["interval"] or [ratio["median"]] * 2 for _, ratio in found]
        reach = [[middle - low for middle, (low, _) in zip(middles, ends)]]
        reach += [[high - middle for middle, (_, high) in zip(middles, ends)]]
        errors = {"yerr": reach, "error_kw": {"linewidth": 0.6}}
        drawn = axes.bar(places, middles, width, label=name, color=COLOURS[name], **errors)
        for bar, (_, ratio) in zip(drawn, found):
            bar.set_hatch("////" if comparing.is_noise(ratio) else None)
    axes.set_yscale("log", base=2)
    axes.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.axhline(1, color="#222222", linewidth=0.8)
    axes.set_xticks([at + 0.4 for at in range(len(results))], [size_name(r["case"]["size"]) for r in results])
    axes.set_ylabel(f"of {floor}, with 95 % intervals; lower is better")
    axes.set_xlabel("a hatched bar is noise")


def distributions(axes, results):
    """Percentiles on the scale of their distance to 100 %."""
    for result in results[:1]:
        for name, row in result["rows"].items():
            curve = row["curve"]
            axes.plot(
                [10 ** (at / 10) for at in range(len(curve))], curve, label=name, color=COLOURS.get(name)
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([1, 10, 100, 1000, 10000], ["0", "90 %", "99 %", "99.9 %", "99.99 %"])
    axes.set_ylabel("µs from when the tick was due")


def scaling(axes, results):
    """A line for each contender, with the middle half of its bursts."""
    for name in COLOURS:
        found = [(r["case"]["count"], r["rows"][name]) for r in results if name in r["rows"]]
        if not found:
            continue
        counts, rates, low, high = zip(
            *((count, *(1e6 / row[key] for key in ("median", "q3", "q1"))) for count, row in found)
        )
        axes.plot(counts, rates, "o-", label=name, color=COLOURS[name])
        axes.fill_between(counts, low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlabel("connections; shaded: the middle half of the bursts")
    axes.set_ylabel("round trips a second")


def write_summary(report, directory):
    """The picture of the first pages: a bar for each of its figures, narrow enough for a phone. Returns the name of its
    file."""
    rows = list(first_page.summary(report["results"]))
    figure, axes = plt.subplots(figsize=(4.5, 0.5 + 0.5 * len(rows)))
    for place, (_work, other, ratio) in enumerate(rows):
        low, high = ratio["interval"] or [ratio["median"]] * 2
        colour = "#888888" if low <= 1 <= high else "#2a7f62" if high < 1 else "#c8553d"
        axes.barh(place, ratio["median"], height=0.62, color=colour)
        axes.plot([low, high], [place, place], color="#222222", linewidth=1.2)
        axes.text(
            max(high, 1) + 0.04, place, f"{ratio['median']:.2f} of {other}", va="center", color="#444444"
        )
    axes.axvline(1, color="#777777", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [work for work, *_ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, max([1, *((ratio["interval"] or [0, 1])[1] for *_, ratio in rows)]) + 0.75)
    axes.set_xticks([0, 1], ["0", "as long as the fastest\nother library for Python"])
    axes.tick_params(left=False, labelcolor="#444444")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    name = f"{slug(report['machine'])}-first-page.svg"
    save(figure, directory / name)
    return name


def save(figure, file):
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "wsfast"}):
        figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


KINDS = {
    "rr": ("Request-response, one core", bars),
    "batch": ("Batches of 100, two cores", bars),
    "open-loop": ("Ticks on schedule", distributions),
    "fan-in": ("Many connections, 512 B, two cores", scaling),
}


def write(reports, directory):
    """A file for each plot. Returns for each report's slug the titles and names of its files."""
    drawn = {}
    for report in reports:
        files = drawn[slug(report["machine"])] = []
        for section, (title, draw) in KINDS.items():
            results = named(report["results"], section)
            if not any(result["rows"] for result in results):
                continue
            figure, axes = plt.subplots(figsize=(9, 4))
            draw(axes, [result for result in results if result["rows"]])
            axes.set_title(f"{title}: {report['machine']['CPU']}", fontsize=10)
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
            axes.grid(alpha=0.3)
            file = directory / f"{slug(report['machine'])}-{section}.svg"
            save(figure, file)
            files.append((title, file.name))
    return drawn
