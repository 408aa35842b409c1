"""Draws docs/pictures/explorer.png: the explorer's page with the profile of the example, as a browser shows it.

Needs Chromium. The picture depends on the browser's fonts, so that it is made anew only when the page has changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "explorer.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1400, 860
NKI = (sys.executable, "-m", "nki.tools.cli")
SHAPES = ("--arg", "q=128x2048:bfloat16", "--arg", "k=128x2048:bfloat16", "--arg", "v=2048x128:bfloat16")


def main(arguments: list[str]) -> int:
    """Write the picture, to the file that is given or to its place in the documents; 1 without a browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is installed", file=sys.stderr)
        return 1
    picture = Path(arguments[0]) if arguments else PICTURE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        example = str(ROOT / "examples" / "flash_attention.py")
        _run(*NKI, "profile", example, *SHAPES, "--target", "trn2", "--out", str(folder / "profile"))
        _run(*NKI, "explorer", str(folder / "profile"), "--html", str(folder / "page.html"))
        page = (folder / "page.html").as_uri()
        shown = (f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=8000", f"--screenshot={folder / 'page.png'}")
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'user'}",
        )
        _run(browser, *flags, *shown, page)
        shutil.copyfile(folder / "page.png", picture)
    print(f"wrote {picture}")
    return 0


def _run(*command: str) -> None:
    """Run a command, which says what it has to say only if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
