"""Coverage-guided fuzzing of all that reads bytes from a peer or from a disk.

`python -m fuzz` runs the targets in `fuzz/targets`, each in a process of its own. The target gets
the package twice: as plain Python, where atheris sees each branch and each comparison and so learns
which inputs lead on, and compiled, where raw memory is at work. Both have to do the same, or the
input is a finding; so is any exception that is not documented. See `fuzz/README.md`.
"""
