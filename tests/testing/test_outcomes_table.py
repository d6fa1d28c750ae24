"""The table of what each tracker shows is that of the last runs of the conformance tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventlog.testing.outcomes import main, outcomes_table, with_table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trackers.md"


def test_the_page_has_the_table_of_the_last_runs() -> None:
    """It is made by `python -m eventlog.testing.outcomes --into docs/trackers.md ...`."""
    table = outcomes_table(ROOT.glob("plugins/*/tests/outcomes.json"))
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, table) == page, (
        "out of date: python -m eventlog.testing.outcomes --into docs/trackers.md "
        "plugins/*/tests/outcomes.json"
    )


def test_a_table_is_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column for each file, a row for each kind of thing, in an order that does not change."""
    one, two = tmp_path / "one.json", tmp_path / "eventlog-two" / "tests" / "outcomes.json"
    two.parent.mkdir(parents=True)
    one.write_text(json.dumps({"text": "shown", "NaN": "impossible: NaN"}))
    two.write_text(json.dumps({"text": "converted: cut", "novel": "shown"}))
    assert main([str(one), str(two)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "|  | two | one |",
        "| --- | --- | --- |",
        "| NaN | ? | no |",
        "| text | converted | yes |",
        "| novel | yes | ? |",
    ]
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table -->\nold\n<!-- end of table -->\nafter\n")
    assert main(["--into", str(page), str(one), str(two)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- table -->\n\n|  | two | one |")
    assert text.endswith("| novel | yes | ? |\n\n<!-- end of table -->\nafter\n")
    with pytest.raises(ValueError, match="must have the lines"):
        with_table("nothing", "a table")
