"""An outside proof of what an answer promises: the real server, and disks as of power cuts.

A library that is preloaded into `slipstream serve` (`recorder.c`) records every change of the files
below the store directory, and every sync. From that record come disks as a power cut at any moment
would have left them (`disk_model`): what was synced is there; the rest is lost, kept, torn or in
another order. On each such disk the real server is started again, and clients look for all that
they had been answered before the cut (`promises`, `inspection`).

`python -m tests.power_cuts --cuts 1000` makes as many cuts as one likes; `make power-cuts` does so.
"""
