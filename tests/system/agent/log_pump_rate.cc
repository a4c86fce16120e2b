// Measures how fast the log thread brings short lines from files to a console. This is not a test:
// it prints the result.
//
//   log_pump_rate DIR [MEGABYTES] [FILES]
//
// Its stdout is the console, so `log_pump_rate DIR | cat > /dev/null` measures a pipe. Each
// repetition measures twice: with complete files (the log thread alone), and with files that other
// threads write at the same time.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "agent/logs/log_pump.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string short_lines(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i)
    text += "step " + std::to_string(i) + " loss 0.123456\n";
  return text;
}

void write_in_pieces(const std::string& path, const std::string& text, std::size_t piece) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, std::min(piece, text.size() - at));
    if (n <= 0) std::abort();
    at += static_cast<std::size_t>(n);
  }
  ::close(fd);
}

double measure(const std::vector<std::string>& paths, const std::string& text, bool live) {
  auto pump = muster::LogPump::start({});
  if (!pump) std::abort();
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    ::unlink(paths[i].c_str());
    if (!live) write_in_pieces(paths[i], text, 1 << 20);
  }
  const auto written = Clock::now();
  for (std::size_t i = 0; i < paths.size(); ++i)
    (*pump)->follow(
        {.file = paths[i], .prefix = muster::LinePrefix("[default" + std::to_string(i) + "]:")});
  if (live) {
    std::vector<std::thread> writers;
    for (const std::string& path : paths)
      writers.emplace_back([&path, &text] { write_in_pieces(path, text, 4096); });
    for (std::thread& writer : writers)
      writer.join();
  }
  if (!(*pump)->stop(std::chrono::minutes(1))) std::abort();
  return std::chrono::duration<double>(Clock::now() - (live ? begin : written)).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string dir = argv[1];
  const std::size_t megabytes = argc > 2 ? std::stoul(argv[2]) : 62;
  const std::size_t files = argc > 3 ? std::stoul(argv[3]) : 2;
  const std::string text = short_lines(megabytes * 1'000'000 / files);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < files; ++i)
    paths.push_back(dir + "/rate_" + std::to_string(i) + ".log");
  for (int repetition = 0; repetition < 3; ++repetition) {
    const double ready = measure(paths, text, false);
    const double live = measure(paths, text, true);
    std::fprintf(stderr, "%zu MB, %zu files: from ready files %.3f s, while written %.3f s\n",
                 megabytes, files, ready, live);
  }
  for (const std::string& path : paths)
    ::unlink(path.c_str());
  return 0;
}
