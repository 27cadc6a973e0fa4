"""What is changed in a source, and what is left alone."""

from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="only `make mutants` installs mutmut")

from mutants.mutation import mutants_of


def changes(tmp_path: Path, source: str) -> list[tuple[str, str, str]]:
    (tmp_path / "m.py").write_text(source)
    return [mutant.key for mutant in mutants_of(tmp_path, "m.py")]


@pytest.mark.parametrize(
    ("line", "now"),
    [
        ("return a and b", ["return a or b", "return (a)", "return (b)"]),
        ("return a < 3", ["return a <= 3", "return a < 4"]),
        (
            "return [x for x in a if x]",
            ["return [x for x in a]"],
        ),
        ("a.pop()", ["pass"]),
        ("return 'word'", ["return 'XXwordXX'"]),
    ],
)
def test_a_change_is_one_and_small(tmp_path, line, now) -> None:
    source = f"class C:\n    def f(a, b):\n        {line}\n"
    assert changes(tmp_path, source) == [("C.f", line, change) for change in now]


def test_a_condition_is_turned_into_its_contrary_once(tmp_path) -> None:
    source = "def f(a):\n    if a:\n        g()\n    while a == 1:\n        g(a)\n"
    assert {now for _, _, now in changes(tmp_path, source)} == {
        "if not (a):",
        "while a != 1:",
        "while a == 2:",
        "g(None)",
        "pass",
    }


@pytest.mark.parametrize(
    "source",
    [
        '"""Docs."""\n',
        "def f():\n    '''Docs.'''\n",
        "def f():\n    raise ValueError('no', 1)\n",
        "def f():\n    return 'a text'\n",
        "def f(a: 'int') -> 'int':\n    return a\n",
        "if TYPE_CHECKING:\n    A = 1\n",
        "class P(Protocol):\n    a = 1\n",
        "class C:\n    def __repr__(self):\n        return 'c'\n",
        "def f(a):\n    return len(a, 1)\n",
        "@g(1)\ndef f(a):\n    return a\n",
        "A = Literal['a']\n",
        "A = f(B)\n",
    ],
)
def test_what_no_test_should_pin_is_left_alone(tmp_path, source) -> None:
    assert changes(tmp_path, source) == []


def test_a_default_and_a_constant_are_of_the_module(tmp_path) -> None:
    source = "A = 1\n\n\ndef f(a=2):\n    return a\n"
    assert changes(tmp_path, source) == [
        ("", "A = 1", "A = 2"),
        ("", "def f(a=2):", "def f(a=3):"),
    ]


def test_equal_changes_of_equal_lines_are_numbered(tmp_path) -> None:
    source = "def f(a):\n    a += 1\n    a += 1\n"
    nows = [now for _, _, now in changes(tmp_path, source)]
    assert len(nows) == len(set(nows)) == 6
    assert "a += 2  # 2" in nows
