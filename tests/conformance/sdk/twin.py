"""The Python counterpart of ranks*.cc, written with torch.distributed."""

import os
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def mine():
    return torch.arange(6, dtype=torch.float32).reshape(2, 3) + 10.0 * (dist.get_rank() + 1)


def one_for_each():
    return [mine() * (i + 1) for i in range(dist.get_world_size())]


def run_reductions(table):
    for name in ("sum", "product", "min", "max", "band", "bor", "bxor"):
        tensor = torch.arange(4) + 3 * dist.get_rank() + 1
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name.upper()))
        table[f"all_reduce_{name}"] = tensor
    tensor = mine()
    dist.reduce(tensor, 1)
    if dist.get_rank() == 1:
        table["reduce"] = tensor
    tensor = torch.zeros_like(mine())
    dist.reduce_scatter(tensor, one_for_each())
    table["reduce_scatter"] = tensor
    tensor = mine()
    dist.all_reduce(tensor, async_op=True).wait()
    table["all_reduce_async"] = tensor


def run_copies(table):
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = mine()
    dist.broadcast(tensor, 1)
    table["broadcast"] = tensor
    all_tensors = [torch.empty_like(mine()) for _ in range(size)]
    dist.all_gather(all_tensors, mine())
    table["all_gather"] = torch.stack(all_tensors)
    gathered = torch.zeros(2 * size, 3)
    dist.all_gather_into_tensor(gathered, mine())
    table["all_gather_into_tensor"] = gathered
    at_1 = [torch.empty_like(mine()) for _ in range(size)] if rank == 1 else None
    dist.gather(mine(), at_1, dst=1)
    if rank == 1:
        table["gather"] = torch.stack(at_1)
    tensor = torch.zeros_like(mine())
    dist.scatter(tensor, one_for_each() if rank == 1 else None, src=1)
    table["scatter"] = tensor
    outputs = [torch.zeros_like(mine()) for _ in range(size)]
    dist.all_to_all(outputs, one_for_each())
    table["all_to_all"] = torch.stack(outputs)
    tensor = torch.zeros(size, 2)
    dist.all_to_all_single(
        tensor, torch.arange(2 * size, dtype=torch.float32).reshape(-1, 2) + 100.0 * rank
    )
    table["all_to_all_single"] = tensor


def run_point_to_point(table):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    tensor = mine()
    if rank == 0:
        dist.send(tensor, last, tag=7)
    if rank == last:
        tensor = torch.zeros_like(mine())
        source = dist.recv(tensor, 0, tag=7)
        table["recv"] = tensor
        table["recv_source"] = torch.tensor(source)
    if rank == last:
        dist.send(tensor, 0)
    if rank == 0:
        source = dist.recv(tensor)
        table["recv_any"] = tensor
        table["recv_any_source"] = torch.tensor(source)


def run_subgroups(table):
    last = dist.new_group([dist.get_world_size() - 1])
    pair = dist.new_group([1, 0])
    table["members"] = torch.tensor(
        [f(group) for group in (last, pair) for f in (dist.get_rank, dist.get_world_size)],
    )
    if dist.get_rank(pair) < 0:
        return
    tensor = mine()
    dist.all_reduce(tensor, group=pair)
    table["pair_all_reduce"] = tensor
    tensor = mine()
    dist.broadcast(tensor, 1, group=pair)
    table["pair_broadcast"] = tensor
    dist.barrier(pair)


EVERYTHING = {
    "text": "Grüße", "numbers": [1, -2, 1 << 40], "real": -0.5, "yes": True, "none": None,
    "pair": (70_000, ("x", False)), "inner": {"empty": [], "long": "x" * 300},
}


def describe(value):
    """Gives the same text as describe() of ranks_collectives.cc."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"real {value:f}"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, list):
        return "[" + "".join(describe(part) + "," for part in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(describe(part) + "," for part in value) + ")"
    return "{" + "".join(f"{describe(k)}:{describe(v)}," for k, v in value.items()) + "}"


def run_objects(table):
    for source in (0, dist.get_world_size() - 1):
        objects = [EVERYTHING if dist.get_rank() == source else None]
        dist.broadcast_object_list(objects, source)
        table[f"object_{source}"] = torch.tensor(list(describe(objects[0]).encode()), dtype=torch.uint8)


def run_collectives(variant):
    table = {}
    run_reductions(table)
    run_copies(table)
    run_point_to_point(table)
    run_subgroups(table)
    run_objects(table)
    # broadcast_bytes() has the wire form of broadcast_object_list: first sizes, then bytes.
    last = dist.get_world_size() - 1
    size = torch.tensor([6 if dist.get_rank() == last else 0])
    dist.broadcast(size, last)
    content = torch.frombuffer(bytearray(b"bytes\n"), dtype=torch.uint8).clone()
    if dist.get_rank() != last:
        content = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(content, last)
    assert bytes(content.tolist()) == b"bytes\n"
    table["bytes"] = torch.tensor(len(content))
    dist.barrier()
    return table


def run_extra(variant):
    rank, size = dist.get_rank(), dist.get_world_size()
    table = {}
    tensor = mine()
    dist.broadcast(tensor, 1, async_op=True).wait()
    table["broadcast_async"] = tensor
    received = torch.zeros(2, 3)
    works = [dist.irecv(received, (rank - 1) % size, tag=3), dist.isend(mine(), (rank + 1) % size, tag=3)]
    for work in works:
        work.wait()
    table["ring"] = received
    tensor = mine()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    table["average"] = tensor
    pair = dist.new_group([1, 2])
    if rank in (1, 2):
        tensor = mine()
        dist.reduce(tensor, 2, dist.ReduceOp.MAX, group=pair)
        gathered = [torch.empty(2, 3) for _ in range(2)] if rank == 2 else None
        dist.gather(mine(), gathered, dst=2, group=pair)
        if rank == 2:
            table |= {"pair_reduce": tensor, "pair_gather": torch.stack(gathered)}
        tensor = torch.zeros(2, 3)
        dist.scatter(tensor, [mine(), mine() * 2] if rank == 1 else None, src=1, group=pair)
        table["pair_scatter"] = tensor
        dist.barrier(pair)
        dist.destroy_process_group(pair)
    empty = torch.empty(0, 3)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    table["empty"] = empty
    turned = torch.cat([mine(), mine()]).t()[:2]
    dist.all_reduce(turned)
    table["turned"] = turned.contiguous()
    scalar = torch.tensor(1.5 + rank)
    dist.all_reduce(scalar)
    table["scalar"] = scalar
    objects = [None]
    if rank == 0:
        objects = [{"weight": mine().t(), "empty": torch.empty(0, 3, dtype=torch.int64), "name": "layer",
                    "conjugate": torch.complex(mine(), mine() + 1).conj(), "negated": torch._neg_view(mine())}]
    dist.broadcast_object_list(objects, 0)
    table["object_weight"] = objects[0]["weight"].contiguous()
    table["object_empty"] = objects[0]["empty"]
    table["object_conjugate"] = objects[0]["conjugate"].resolve_conj()
    table["object_negated"] = objects[0]["negated"].resolve_neg()
    table["object_name"] = torch.tensor(list(objects[0]["name"].encode()), dtype=torch.uint8)
    dist.barrier()
    return table


def complex_mine(rank=None):
    rank = dist.get_rank() if rank is None else rank
    return torch.complex(torch.arange(6.0).reshape(2, 3) + 10.0 * (rank + 1), 1.0 - torch.arange(6.0).reshape(2, 3) - rank)


def run_complex(variant):
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    table = {}
    for name, tensor in (
        ("plain", complex_mine()), ("double", complex_mine().to(torch.complex128)),
        ("turned", complex_mine().t()), ("scalar", complex_mine()[1, 1].clone()),
        ("empty", complex_mine()[:0]),
    ):
        dist.all_reduce(tensor)
        table[f"all_reduce_{name}"] = tensor.contiguous()
    tensor = complex_mine()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    table["average"] = tensor
    tensor = complex_mine()
    dist.all_reduce(tensor, async_op=True).wait()
    table["all_reduce_async"] = tensor
    for name in ("PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        try:
            dist.all_reduce(complex_mine(), getattr(dist.ReduceOp, name))
        except ValueError:
            table[f"refused_{name}"] = torch.tensor(True)
    tensor = complex_mine()
    dist.reduce(tensor, 1)
    if rank == 1:
        table["reduce"] = tensor
    tensor = torch.zeros_like(complex_mine())
    dist.reduce_scatter(tensor, [complex_mine() * (i + 1) for i in range(size)])
    table["reduce_scatter"] = tensor
    tensor = complex_mine()
    dist.broadcast(tensor, 1)
    table["broadcast"] = tensor
    for name, tensor in (("all_gather", complex_mine()), ("all_gather_negated", torch._neg_view(complex_mine())),
                         ("all_gather_real_negated", torch._neg_view(mine()))):
        parts = [torch.empty_like(tensor) for _ in range(size)]
        dist.all_gather(parts, tensor)
        table[name] = torch.stack(parts)
    tensor = torch.zeros(2 * size, 3, dtype=torch.complex64)
    dist.all_gather_into_tensor(tensor, complex_mine())
    table["all_gather_into_tensor"] = tensor
    tensor = torch.zeros_like(complex_mine())
    dist.scatter(tensor, [complex_mine() * (i + 1) for i in range(size)] if rank == 1 else None, src=1)
    table["scatter"] = tensor
    outputs = [torch.zeros_like(complex_mine()) for _ in range(size)]
    dist.all_to_all(outputs, [complex_mine() * (i + 1) for i in range(size)])
    table["all_to_all"] = torch.stack(outputs)
    tensor = torch.zeros(size, 2, dtype=torch.complex64)
    dist.all_to_all_single(tensor, complex_mine().reshape(3, 2)[:size])
    table["all_to_all_single"] = tensor
    if rank == 0:
        dist.send(complex_mine(), last)
        dist.send(complex_mine(), last)
    if rank == last:
        tensor = torch.zeros_like(complex_mine())
        dist.recv(tensor, 0)
        table["recv"] = tensor
        pairs = torch.zeros(2, 3, 2)
        dist.recv(pairs)
        table["recv_pairs"] = pairs
    dist.barrier()
    try:
        parts = [torch.empty_like(complex_mine()) for _ in range(size)] if rank == 0 else None
        dist.gather(complex_mine(), parts, dst=0)
    except RuntimeError as error:
        table["gather_refused"] = torch.tensor("Invalid scalar type" in str(error))
    return table


class Point:
    def __init__(self):
        self.x = 1


# The names are those in run_foreign_objects() of ranks_extra.cc.
FOREIGN = {
    "tensor": torch.ones(2), "inner_tensor": {"weights": [torch.ones(1)]}, "array": numpy.ones(2),
    "bytes": b"x", "bytearray": bytearray(b"x"), "set": {1}, "frozenset": frozenset([1]),
    "object": Point(), "class": Point, "dtype": torch.float32, "complex": 1j, "large": 1 << 70,
}


def run_foreign_objects(variant):
    rank, table = dist.get_rank(), {}
    for name, value in FOREIGN.items():
        objects = [value if rank == 0 else None]
        dist.broadcast_object_list(objects, 0)
        table[name] = torch.tensor(type(objects[0]) is type(value))
    objects = ["not replaced"]
    dist.broadcast_object_list(objects, 1)
    table["device"] = torch.tensor(objects[0] is None)
    dist.broadcast_object_list(["still together"], 0)
    return table


class Net(nn.Module):
    def __init__(self, with_unused):
        super().__init__()
        # C++ creates all layers first and registers some, so Python must use the random generator
        # in the same order.
        layers = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Linear(16, 4)]
        self.first, self.norm, self.shared, self.last = layers
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        spare = nn.Linear(4, 4)
        if with_unused:
            self.spare = spare

    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        hidden = torch.relu(self.shared(torch.relu(self.shared(hidden))))
        return self.frozen(self.last(hidden)), None


def make_ddp(net, variant):
    options = {
        "small_buckets": {"bucket_cap_mb": 0.001},
        "unused": {"find_unused_parameters": True},
        "static_graph": {"static_graph": True},
        "local_buffers": {"forward_sync_buffers": False},
    }
    chosen = options.get(variant, {})
    if variant.endswith("_view"):
        chosen = {"gradient_as_bucket_view": True}
    ddp = DistributedDataParallel(net, **chosen)
    if variant.startswith("fp16"):
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if variant.startswith("bf16"):
        # The hook is registered under another name: under its own name torch refuses it on CPUs.
        ddp.register_comm_hook(None, lambda state, bucket: default_hooks.bf16_compress_hook(state, bucket))
    return ddp


def run_ddp(variant):
    torch.manual_seed(1 + dist.get_rank())
    net = Net(variant in ("unused", "static_graph"))
    ddp = make_ddp(net, variant)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    table = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        if variant == "no_sync":
            with ddp.no_sync():
                ddp(torch.randn(5, 8))[0].square().mean().backward()
        ddp(torch.randn(5, 8))[0].square().mean().backward()
        for name, parameter in net.named_parameters():
            if parameter.grad is not None:
                table[f"{step}.{name}"] = parameter.grad.clone()
        optimizer.step()
    for name, tensor in net.state_dict().items():
        table[f"end.{name}"] = tensor
    return table


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = self.first
        self.norm = nn.BatchNorm1d(8)
        self.other_norm = self.norm
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.other_norm(self.second(torch.relu(self.norm(self.first(x))))))


def run_ddp_tied(variant):
    torch.manual_seed(1 + dist.get_rank())
    net = Tied()
    ddp = DistributedDataParallel(net)
    table = {f"start.{name}": parameter.detach().clone()
             for name, parameter in net.named_parameters(remove_duplicate=False)}
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        ddp(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()
    for name, tensor in net.state_dict().items():
        table[f"end.{name}"] = tensor
    return table


def main():
    test, variant, folder = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    table = {"collectives": run_collectives, "ddp": run_ddp, "ddp_tied": run_ddp_tied, "extra": run_extra, "complex": run_complex,
             "foreign_objects": run_foreign_objects}[test](variant)
    torch.save(table, f"{folder}/{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Skips Python's shutdown: in torch 2.13 a Gloo thread may still hold a tensor, and releasing it
    # while Python shuts down aborts the process. destroy_process_group() does not end that thread
    # because DDP holds another reference. A delay of 5 ms in that thread is enough to cause the
    # abort.
    sys.stdout.flush()
    os._exit(0)
