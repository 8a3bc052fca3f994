"""A table in Markdown."""


def grid(head, rows):
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for cells in rows:
        yield f"| {' | '.join(cells)} |"
    yield ""
