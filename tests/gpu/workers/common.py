"""What the Python workers of the GPU checks share. MUSTER_REHEARSE=1: the CPU and Gloo in place of a GPU and NCCL."""
import os
import sys

REHEARSES = os.environ.get("MUSTER_REHEARSE") == "1"


def device():
    """GPU 0: all workers of these checks share it."""
    import torch  # pylint: disable=import-outside-toplevel
    if REHEARSES or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)


def expect(holds, what):
    if not holds:
        raise SystemExit(f"wrong: {what}")
    if os.environ.get("RANK", "0") == "0":
        print(f"ok: {what}", flush=True)


def leave():
    """Ends without Python's own shutdown, in which Gloo's threads of torch 2.11 may abort the process."""
    sys.stdout.flush()
    os._exit(0)
