"""How long the report of a large run takes to open: ``python bench/report_open.py [--frames 5000]``.

Prints the file's size and, of five openings in headless Chromium, the median time from the start of the navigation to
the first row of the tree, in seconds. Chromium is Debian's, or the one that PATH names.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from studio.report.page import page
from tests.big_run import big_run

_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main(frames: int) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "big.html"
        path.write_text(page(big_run(frames)), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGS)
        times: list[float] = []
        for _ in range(5):
            made = browser.new_page()
            made.goto(path.as_uri(), wait_until="commit")
            made.wait_for_selector("#rows [role=treeitem]", state="attached")
            times.append(made.evaluate("performance.now()") / 1000)
            made.close()
        browser.close()
        print(f"{frames} frames: {path.stat().st_size / 1e6:.1f} MB, opened in {statistics.median(times):.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=5000)
    main(parser.parse_args().frames)
