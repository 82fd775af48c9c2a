"""stub."""

import sys


class LiveView:
    def __init__(self, calls_bound=None, quiet=False):
        self.q = quiet

    def __enter__(self):
        return self

    def __exit__(self, *a):
        pass

    def __call__(self, e):
        if not self.q:
            print(e.get("event"), e.get("frame"), file=sys.stderr)
