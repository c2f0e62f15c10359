"""One case, in this process: `python -m tidelog.bench.worker SUITE CASE SCALE DATA RESULTS`.

Figures go to the file RESULTS, one a line, each as soon as it is there. Standard output is not for
them: peers write to it.
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
    """Measure, and write down what was found."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    request = Request(Scale(scale), Path(data) if data else None)
    with open(results, "w", encoding="utf-8") as file:
        for figure in SUITES[suite].case(case).measure(request):
            stamped = dataclasses.replace(figure, peak_bytes=peak_bytes())
            file.write(json.dumps(dataclasses.asdict(stamped)) + "\n")
            file.flush()


def _end_with(parent: int) -> None:
    """End this process when the one that started it has ended, however that was."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def peak_bytes() -> int:
    """Return the largest memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
