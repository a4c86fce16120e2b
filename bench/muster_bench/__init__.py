"""muster's benchmark: measures muster, torchrun and the physical limit side by side in one run.

model.py      quantities, samples and statistics
interleave.py the order of the samples
programs.py   finds the programs, with a reason for each missing one
command.py    one run of a launcher: starts it, reads its workers' notes, waits for its end
server.py     one store server, for the time of a measurement
table.py      the table and the JSON; docs.py writes the table into docs/performance.md
curve.py      a picture of docs/performance.md: nodes against seconds
goodput_curve.py  the other: time against steps
steps.py      what a job has kept, from the log of its steps
namespaces.py hosts in namespaces of Linux, also for the tests
wire.py       hosts on one wire
peers.py      stands for the other workers of a job of several nodes
families/     one file for each family of measurements; a new file adds a family
"""
