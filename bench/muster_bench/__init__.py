"""muster's bench: muster, torchrun and the physical limit, measured side by side in one run.

model.py      what is measured and what came out; statistics
interleave.py who is measured when
programs.py   which programs there are, and why not
command.py    one launcher's run: start it, watch its workers' notes, see it end
table.py      the table and the JSON; docs.py puts the table into docs/performance.md
curve.py      the picture in it
peers.py      what stands for the other workers of a job of several nodes
families/     one file for each family of measurements; a new file is a new family
"""
