"""Rank 1 cannot read its data. The README of the project shows what muster says about it."""
import os
import time

if os.environ["RANK"] == "1":
    raise FileNotFoundError("shard-00001.tar")
time.sleep(600)
