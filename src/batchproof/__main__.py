"""`python -m batchproof`, and the console script."""

import sys


def main() -> None:
    """Run the command line; say in one line what to install when the extra is missing."""
    try:
        from batchproof.sched.cli import run_cli
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "batchproof":
            raise
        sys.exit(
            f"batchproof: the command line needs {missing.name}: pip install 'batchproof[cli]'"
        )
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
