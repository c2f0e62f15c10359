"""One case, in this process: `python -m tidelog.bench.worker SUITE CASE SCALE DATA RESULTS`.

Figures are written to the file RESULTS, one per line, as soon as they are measured. Standard output
is not used, because peers write to it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

from tidelog.bench.model import Request, Scale
from tidelog.bench.suites import SUITES


def main(suite: str, case: str, scale: str, data: str, results: str) -> None:
    """Run the case, and write its figures."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    request = Request(Scale(scale), Path(data) if data else None)
    with open(results, "w", encoding="utf-8") as file:
        for figure in SUITES[suite].case(case).measure(request):
            stamped = dataclasses.replace(figure, peak_bytes=peak_bytes())
            file.write(json.dumps(dataclasses.asdict(stamped)) + "\n")
            file.flush()


def _end_with(parent: int) -> None:
    """End this process when its parent process has ended for any reason."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
