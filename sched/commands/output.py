"""Where a command's text goes: to stdout, or whole into a file."""

from batchproof.sched.text_files import whole_file


def write_text(path: str | None, text: str) -> None:
    """Write text to a file, or to stdout if there is none; `InputError` where it cannot be."""
    if path is None:
        print(text, end="")
        return
    with whole_file(path) as file:
        file.write(text.encode())
