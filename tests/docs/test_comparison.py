"""The comparison that the docs show is the one that the code makes now."""

import subprocess
import sys

import pytest


def check(root, *options):
    argv = [sys.executable, "docs/generate_comparison.py", "--check", *options]
    out = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr


def test_the_small_comparison_is_not_stale(pytestconfig):
    check(pytestconfig.rootpath, "--quick")


@pytest.mark.deep
def test_the_whole_comparison_and_its_plots_are_not_stale(pytestconfig):
    check(pytestconfig.rootpath)
