"""Names that trackers take: always the same, never shared, kept for the next process."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eventlog.sinks.names import Names


def words(text: str) -> str:
    return re.sub(r"[^\w/]", "_", text)


def test_a_name_that_fits_stays() -> None:
    """Nothing is changed that need not be."""
    names = Names(words)
    assert [names(key) for key in ("loss", "val/acc", "loss")] == ["loss", "val/acc", "loss"]
    assert names.originals() == {}


def test_names_that_would_become_one_do_not() -> None:
    """The second key of a name gets a number, and keeps it; the originals can be found."""
    names = Names(words)
    assert [names(key) for key in ("t(s)", "t[s]", "t(s)", "t{s}")] == [
        "t_s_",
        "t_s__2",
        "t_s_",
        "t_s__3",
    ]
    assert names.originals() == {"t_s_": "t(s)", "t_s__2": "t[s]", "t_s__3": "t{s}"}


def test_a_key_of_two_axes_or_kinds_has_two_names() -> None:
    """The one that comes second tells which it is."""
    names = Names()
    assert names("loss") == "loss"
    assert names("loss", "epoch") == "loss_epoch"
    assert names("loss", kind="text") == "loss_text"
    assert names("acc", "epoch") == "acc"
    assert names("acc") == "acc_step"


def test_folders_and_files_do_not_meet() -> None:
    """Where names are paths, foo and foo/bar cannot both be, whichever comes first."""
    names = Names(nested=True)
    keys = ["foo", "foo/bar", "foo/baz", "a/b", "a"]
    assert [names(key) for key in keys] == ["foo", "foo_2/bar", "foo_2/baz", "a/b", "a_2"]


def test_case_may_not_matter() -> None:
    """Loss and loss are one file on some systems."""
    names = Names(fold_case=True)
    assert [names("Loss").casefold(), names("loss").casefold()] == ["loss", "loss_2"]


def test_odd_names_have_a_name() -> None:
    """Empty ones, half a surrogate pair, and 10,000 characters."""
    names = Names(longest=100)
    keys = ["", "\ud800", "?", "x" * 10_000, "x" * 10_001, "🔥"]
    made = [names(key) for key in keys]
    assert len(set(made)) == len(keys)
    assert all(0 < len(name) <= 100 for name in made)
    "".join(made).encode()


def test_the_next_process_goes_on_with_the_table(tmp_path: Path) -> None:
    """Names stay, also when the keys come in another order then."""
    path = tmp_path / "deep" / "names.json"
    names = Names(words, path)
    before = {key: names(key) for key in ("t(s)", "t[s]", "plain")}
    epoch = names("loss", "epoch")
    names.save()
    again = Names(words, path)
    assert again("loss") == "loss_step"
    assert again("loss", "epoch") == epoch == "loss"
    assert {key: again(key) for key in ("plain", "t[s]", "t(s)")} == before
    path.write_text("[{")
    assert Names(words, path)("t[s]") == "t_s_"


def test_nothing_is_written_for_names_that_fit(tmp_path: Path) -> None:
    """The table is there only where there is something to look up."""
    names = Names(words, tmp_path / "names.json")
    names("loss")
    names.save()
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from("aA/()_2"), max_size=5), st.sampled_from(["step", "epoch"])
        ),
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_each_key_has_a_name_of_its_own(
    keys: list[tuple[str, str]], nested: bool, fold_case: bool
) -> None:
    """Whatever the rules, no two (axis, key) share a name, and asking again changes nothing."""
    names = Names(words, nested=nested, fold_case=fold_case, longest=12)
    made = {(axis, key): names(key, axis) for key, axis in keys}
    assert made == {(axis, key): names(key, axis) for key, axis in reversed(keys)}
    shown = [name.casefold() if fold_case else name for name in made.values()]
    assert len(set(shown)) == len(made)
    assert all(0 < len(name) <= 12 for name in shown)
    if nested:
        assert not any(b.startswith(f"{a}/") for a in shown for b in shown)
