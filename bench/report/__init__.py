"""Reports: tables, plots and pages, from the data of a run and from nothing else."""


def grid(head, rows):
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for cells in rows:
        yield f"| {' | '.join(cells)} |"
    yield ""
