"""Tests how CMake finds LibTorch and the headers of NCCL and CUDA: in folders that have the layout of
torch's wheels and of those on which a CUDA build depends.

find_torch_test.py MusterTorch.cmake
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

MODULE = pathlib.Path(sys.argv[1]).resolve()
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(search NONE)
# No header of this machine counts.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set(CMAKE_IGNORE_PATH /usr/local/cuda/include /usr/local/cuda/include/cccl)
include({module})
muster_find_torch({torch})
message(STATUS "found: ${{muster_torch_FOUND}} ${{muster_torch_VERSION}} NCCL: ${{muster_torch_CUDA}}")
if(TARGET muster::torch)
  get_target_property(folders muster::torch INTERFACE_INCLUDE_DIRECTORIES)
  message(STATUS "folders: ${{folders}}")
else()
  message(STATUS "because: ${{muster_torch_WHY_NOT}}")
endif()
"""
# Header -> its place in the wheels of CUDA 13.
HEADERS = {"nccl.h": "nvidia/nccl/include/nccl.h",
           "cuda_runtime_api.h": "nvidia/cu13/include/cuda_runtime_api.h",
           "crt/host_config.h": "nvidia/cu13/include/crt/host_config.h",
           "nv/target": "nvidia/cu13/include/nv/target"}


class FindTorch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = pathlib.Path(folder.name) / "site-packages"
        self.torch = self.site / "torch"
        self.lay("torch/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
        self.lay("torch/include/gloo/context.h")
        for library in ("torch_cpu", "c10"):
            self.lay(f"torch/lib/lib{library}.so")
        self.version(2, 15, 0)

    def lay(self, path, text=""):
        file = self.site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def version(self, *numbers):
        lines = [f"#define TORCH_VERSION_{name} {n}" for name, n in zip(("MAJOR", "MINOR", "PATCH"), numbers)]
        self.lay("torch/include/torch/headeronly/version.h", "\n".join(lines) + "\n")

    def cuda(self, *headers):
        for library in ("torch_cuda", "c10_cuda"):
            self.lay(f"torch/lib/lib{library}.so")
        for header in headers:
            self.lay(HEADERS[header])

    def configured(self):
        source = self.site.parent / "project"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT.format(module=MODULE, torch=self.torch))
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", source / "build"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_build_for_cpus_has_no_nccl(self):
        self.assertIn("found: TRUE 2.15.0 NCCL: FALSE", self.configured())

    def test_all_headers_of_the_wheels_are_found(self):
        self.cuda(*HEADERS)
        output = self.configured()
        self.assertIn("found: TRUE 2.15.0 NCCL: TRUE", output)
        for folder in ("nvidia/nccl/include", "nvidia/cu13/include"):
            self.assertIn(str(self.site / folder), output)

    def test_cccl_may_be_in_its_own_folder(self):
        self.cuda(*(header for header in HEADERS if header != "nv/target"))
        self.lay("nvidia/cu13/include/cccl/nv/target")
        output = self.configured()
        self.assertIn("found: TRUE 2.15.0 NCCL: TRUE", output)
        self.assertIn(str(self.site / "nvidia/cu13/include/cccl"), output)

    def test_a_missing_header_is_named_with_its_package(self):
        packages = {"nccl.h": "nvidia-nccl-cu13", "cuda_runtime_api.h": "nvidia-cuda-runtime",
                    "crt/host_config.h": "nvidia-cuda-crt", "nv/target": "nvidia-cuda-cccl"}
        self.assertEqual(packages.keys(), HEADERS.keys())
        for header in HEADERS:
            with self.subTest(header):
                self.setUp()
                self.cuda(*(h for h in HEADERS if h != header))
                output = self.configured()
                self.assertIn(f"headers are missing: {header} (pip: {packages[header]}): no NCCL", output)
                self.assertIn("found: TRUE 2.15.0 NCCL: FALSE", output)

    def test_an_old_release_is_refused(self):
        self.version(2, 10, 1)
        output = self.configured()
        self.assertIn("torch 2.10.1", output)
        self.assertIn("2.11 or later is needed", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
