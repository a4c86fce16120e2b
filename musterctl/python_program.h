// Runs a short Python program for the doctor.
#pragma once

#include <chrono>
#include <string>

namespace muster::ctl {

struct PythonAnswer {
  std::string output;
  std::string problem;  // Why there is no output, as a sentence; empty: there is.
};

/// Runs `program` with PYTHON_EXEC, or with python3 from PATH. What it prints on stderr is dropped.
/// A program that takes longer than `limit` is killed.
PythonAnswer run_python(const std::string& program, std::chrono::seconds limit);

}  // namespace muster::ctl
