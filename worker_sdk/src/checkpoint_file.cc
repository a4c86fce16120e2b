// One file: written so that it is whole, read so that it harms nobody.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checkpoint_bytes.h"
#include "muster/checkpoint.h"
#include "pickle_file.h"

namespace muster {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  const std::string reason = std::strerror(errno);  // Before anything else may change it.
  throw Error(path.string() + ": " + what + ": " + reason + ".");
}

void write_all(int fd, const std::vector<char>& bytes, const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot be written");
    done += static_cast<std::size_t>(n);
  }
}

void write_and_rename(const std::filesystem::path& path, const std::filesystem::path& partial,
                      const std::vector<char>& bytes) {
  const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail(path, "cannot be written (" + partial.filename().string() + ")");
  write_all(file.get(), bytes, path);
  if (::fsync(file.get()) != 0) fail(path, "cannot be synced to the disk");
  if (::rename(partial.c_str(), path.c_str()) != 0) fail(path, "cannot be put in place");
  // The new name itself is on the disk only when the folder is.
  const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
}

}  // namespace

void save_file(const std::filesystem::path& path, const c10::IValue& value) {
  const std::vector<char> bytes = write_pickle_file(value);
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);  // open() tells if it failed.
  }
  const auto partial = path.parent_path() / ("." + path.filename().string() + "." +
                                             std::to_string(::getpid()) + ".partial");
  try {
    write_and_rename(path, partial, bytes);
  } catch (const Error&) {
    ::unlink(partial.c_str());
    throw;
  }
}

std::vector<char> read_bytes(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) fail(path, "cannot be read");
  std::vector<char> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot be read");
    if (n == 0) break;  // Cut off meanwhile: the parser will say so.
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

c10::IValue parse_bytes(const std::vector<char>& bytes, const std::filesystem::path& path) {
  try {
    return read_pickle_file(bytes);
  } catch (const std::exception& error) {
    std::string reason = error.what();
    reason = reason.substr(0, reason.find('\n'));
    throw Error(path.string() +
                ": torn, or not written by torch.save or save_file (weights, numbers, texts and "
                "containers of them): " +
                reason);
  }
}

c10::IValue moved(const c10::IValue& value, c10::Device device) {
  if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().to(device) : value;
  if (value.isGenericDict()) {
    const auto from = value.toGenericDict();
    c10::impl::GenericDict to(from.keyType(), from.valueType());
    for (const auto& entry : from)
      to.insert(entry.key(), moved(entry.value(), device));
    return to;
  }
  if (value.isList()) {
    const auto from = value.toList();
    c10::impl::GenericList to(from.elementType());
    for (const auto& element : from)
      to.push_back(moved(element, device));
    return to;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> to;
    for (const auto& element : value.toTupleRef().elements())
      to.push_back(moved(element, device));
    return c10::ivalue::Tuple::create(std::move(to));
  }
  return value;
}

c10::IValue load_file(const std::filesystem::path& path, c10::Device map_location) {
  return moved(parse_bytes(read_bytes(path), path), map_location);
}

}  // namespace muster
