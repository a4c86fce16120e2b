"""What the workers of a test of notices have written, each in files of its own."""
import json
import time


class NoticeFacts:
    """For a test whose nodes have the tags a to d. A worker's files are NAME.TAG.PID; NAME.TAG.PID.new is not complete."""

    def facts(self, name):
        """{(tag, pid): what that worker wrote}"""
        found = {}
        for path in self.dir.glob(f"{name}.[abcd].*"):
            if path.suffix != ".new":
                found[path.name.split(".")[1], int(path.suffix[1:])] = json.loads(path.read_text())
        return found

    def fail_beside(self, fault, draw):
        """The faults of both tests: musterd is killed and started again, or the notified node is killed."""
        if fault == "host":
            self.stop_musterd()
            time.sleep(draw.uniform(0, 1))
            self.start_musterd()
        elif fault == "node":
            self.kill(self.notified)

    def begun(self, after=()):
        """The workers of a new round, when all of it have started."""
        new = {key: fact for key, fact in self.facts("start").items() if key not in after}
        newest = max((fact["generation"] for fact in new.values()), default=0)
        new = {key: fact for key, fact in new.items() if fact["generation"] == newest}
        return new if new and len(new) == next(iter(new.values()))["world"] else None
