// Writes a file in one step, and reads a file without trust in its content.
#include <caffe2/serialize/read_adapter_interface.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

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
  const int number = errno;  // Read before another call changes it.
  throw SystemError(path.string() + ": " + what + ": " + std::strerror(number) + ".", number);
}

std::size_t read_at(int fd, std::size_t position, char* to, std::size_t count,
                    const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t n = ::pread(fd, to + done, count - done, static_cast<off_t>(position + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot be read");
    if (n == 0) break;  // The file was truncated meanwhile. The parser reports that.
    done += static_cast<std::size_t>(n);
  }
  return done;
}

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (fd_.get() < 0 || ::fstat(fd_.get(), &status) != 0) fail(path, "cannot be read");
    size_ = static_cast<std::size_t>(status.st_size);
  }
  std::size_t size() const { return size_; }
  std::size_t read(std::size_t position, char* to, std::size_t count) const {
    return read_at(fd_.get(), position, to, count, path_);
  }

 private:
  std::filesystem::path path_;
  Descriptor fd_;
  std::size_t size_ = 0;
};

[[noreturn]] void fail_torn(const std::filesystem::path& path, const std::exception& error) {
  std::string reason = error.what();
  reason = reason.substr(0, reason.find('\n'));
  throw Error(path.string() +
              ": torn, or not written by torch.save or save_file (weights, numbers, texts and "
              "containers of them): " +
              reason);
}

}  // namespace

// Reads parts of a file for LibTorch's reader. The reader calls read() through C code, so read()
// does not throw: it keeps the exception, and parse() throws it.
class SnapshotParts : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit SnapshotParts(const std::filesystem::path& path) : path_(path), file_(path) {}
  std::size_t size() const override { return file_.size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t count,
                   const char* /*what*/) const override {
    // With a torn file, LibTorch's reader may read at any position.
    if (position >= file_.size()) return 0;
    try {
      return file_.read(position, static_cast<char*>(to), count);
    } catch (const SystemError&) {
      failure_ = std::current_exception();
      return 0;
    }
  }
  const OpenFile& file() const { return file_; }

  // Calls `read` and returns its result. Throws SystemError if the system could not read the file
  // meanwhile, and Error if the file is torn or foreign.
  template <class Read>
  auto parse(Read read) const {
    try {
      return read();
    } catch (const std::exception& error) {
      if (failure_) std::rethrow_exception(failure_);
      fail_torn(path_, error);
    }
  }

 private:
  std::filesystem::path path_;
  OpenFile file_;
  mutable std::exception_ptr failure_;
};

OpenSnapshot::OpenSnapshot(const std::filesystem::path& path)
    : parts_(std::make_shared<SnapshotParts>(path)),
      file_(parts_->parse([&] { return std::make_unique<PickleFile>(parts_); })) {}

void OpenSnapshot::check_readable() const {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::vector<char> piece(kPieceBytes);
  for (std::size_t at = 0; at < parts_->file().size(); at += kPieceBytes)
    parts_->file().read(at, piece.data(), piece.size());
}

namespace {

void write_all(int fd, const void* data, std::size_t size, const std::filesystem::path& path) {
  const char* bytes = static_cast<const char*>(data);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::write(fd, bytes + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot be written");
    done += static_cast<std::size_t>(n);
  }
}

void write_and_rename(const std::filesystem::path& path, const std::filesystem::path& partial,
                      const c10::IValue& value) {
  // The name can be guessed: what lies there is removed, and never followed or written.
  ::unlink(partial.c_str());
  const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0) fail(path, "cannot be written (" + partial.filename().string() + ")");
  write_pickle_file(
      value, [&](const void* data, std::size_t size) { write_all(file.get(), data, size, path); });
  if (::fsync(file.get()) != 0) fail(path, "cannot be synced to the disk");
  if (::rename(partial.c_str(), path.c_str()) != 0) fail(path, "cannot be put in place");
  // The rename is on the disk only after the sync of the folder.
  const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
}

}  // namespace

void save_file(const std::filesystem::path& path, const c10::IValue& value) {
  if (path.has_parent_path()) {
    std::error_code failure;
    // open() reports an error if this fails.
    std::filesystem::create_directories(path.parent_path(), failure);
  }
  const auto partial = path.parent_path() / ("." + path.filename().string() + "." +
                                             std::to_string(::getpid()) + kPartialEnd);
  try {
    write_and_rename(path, partial, value);
  } catch (const SystemError&) {
    ::unlink(partial.c_str());
    throw;
  } catch (const Error& error) {
    ::unlink(partial.c_str());
    throw Error(path.string() + ": " + error.what());
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

namespace {

// Copies each container once: two references to one container become two references to one copy.
class Mover {
 public:
  explicit Mover(c10::Device device) : device_(device) {}

  c10::IValue move(const c10::IValue& value) {
    if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().to(device_) : value;
    if (!value.isGenericDict() && !value.isList() && !value.isTuple()) return value;
    const auto found = moved_.find(value.internalToPointer());
    if (found != moved_.end()) return found->second;
    c10::IValue copy = copy_container(value);
    moved_.emplace(value.internalToPointer(), copy);
    return copy;
  }

 private:
  c10::IValue copy_container(const c10::IValue& value) {
    if (value.isGenericDict()) {
      const auto from = value.toGenericDict();
      c10::impl::GenericDict to(from.keyType(), from.valueType());
      for (const auto& entry : from)
        to.insert(entry.key(), move(entry.value()));
      return to;
    }
    if (value.isList()) {
      const auto from = value.toList();
      c10::impl::GenericList to(from.elementType());
      for (const auto& element : from)
        to.push_back(move(element));
      return to;
    }
    std::vector<c10::IValue> to;
    for (const auto& element : value.toTupleRef().elements())
      to.push_back(move(element));
    return c10::ivalue::Tuple::create(std::move(to));
  }

  c10::Device device_;
  std::map<const void*, c10::IValue> moved_;
};

}  // namespace

c10::IValue moved(const c10::IValue& value, c10::Device device) {
  return Mover(device).move(value);
}

c10::IValue load_file(const std::filesystem::path& path, c10::Device map_location) {
  const auto parts = std::make_shared<SnapshotParts>(path);
  return moved(parts->parse([&] { return read_pickle_file(parts); }), map_location);
}

}  // namespace muster
