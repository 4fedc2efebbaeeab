"""What Spark has a Python worker do for each task that a task of a small micro-batch need not pay.

A worker lives on from task to task. Before each one Spark has it forget what its import system
knows, and after each one it collects garbage: both go through everything that is loaded or could
be, a multiple of the time that the task itself takes.
"""

import functools
import gc
import sys
from zipimport import zipimporter


def spare() -> None:
    """Spare this worker what can be; called by each task."""
    _spare_the_collector(loaded=len(sys.modules))
    _spare_the_archives()


@functools.cache
def _spare_the_collector(loaded: int) -> None:
    """Take what a worker has loaded out of the garbage collector's sight, once for each number of
    modules: the first task loads most of them."""
    gc.freeze()


def _spare_the_archives() -> None:
    """Drop the finders of zip archives, as PySpark itself is one on the workers' path.

    Told to forget, such a finder reads the archive's directory at once, thousands of names. One
    that is missing is made anew by the next import that looks for it.
    """
    finders = sys.path_importer_cache
    for path in [path for path, found in finders.items() if isinstance(found, zipimporter)]:
        finders.pop(path, None)
