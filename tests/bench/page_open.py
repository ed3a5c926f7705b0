#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long pages of reports take to open in a headless Chromium, from asking for the file to the first picture, by events.

Usage: page_open.py WRITE_SAMPLE_PAGE   (build-*/tests/write_sample_page)
The best of three for each size: a browser starts anew each time.
"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reports"))

from browser import CHROMIUM, SKIPPED, attributes  # noqa: E402


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if CHROMIUM is None:
        print("skipped: no chromium here")
        sys.exit(SKIPPED)
    print(f"{'events':>10} {'page':>10} {'open':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for microbatches, layers in ((64, 16), (128, 96), (1024, 128)):
            page = pathlib.Path(folder) / f"{microbatches}.html"
            subprocess.run([sys.argv[1], page, str(microbatches), str(layers)], check=True, stdout=subprocess.DEVNULL)
            runs = [attributes(page, "") for _ in range(3)]
            best = min(int(run["open-ms"]) for run in runs)
            print(f"{int(runs[0]['events']):>10,} {page.stat().st_size / 2**20:>6.1f} MiB {best:>7} ms", flush=True)


if __name__ == "__main__":
    main()
