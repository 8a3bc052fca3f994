"""A bot on a bad day, for a few seconds; `make test` also runs a minute of it, and `make chaos` ten."""

from __future__ import annotations

import logging
import sys

import pytest
from scenarios import chaos, soak


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("seed", [3, 4])
async def test_what_was_published_is_delivered_or_reported_as_lost(seed, caplog):
    caplog.set_level(logging.CRITICAL)
    report = await chaos.play(3.0, seed)
    assert not report.errors, report
    assert report.delivered > 300
    assert report.stats.connects > 2


def test_a_soak_of_two_seconds_reports_each_period(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["soak", "2", str(tmp_path / "soak.md"), "1"])
    monkeypatch.setattr(logging, "disable", lambda level: None)
    with pytest.raises(SystemExit) as end:
        soak.main()
    assert end.value.code is None
    head, _, *rows = (tmp_path / "soak.md").read_text().splitlines()
    assert head.split(" | ")[1:3] == ["RSS KiB", "descriptors"]
    assert len(rows) >= 2
