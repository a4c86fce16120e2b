// A layer over SQLite's own file access, whose writes fail when a test wants it.
#pragma once

#include <sqlite3.h>

#include <map>
#include <memory>

#include "base/check.h"

namespace muster::testing {

class FaultyFiles {
 public:
  /// Every database that is opened from now on uses this layer.
  static FaultyFiles& install() {
    static FaultyFiles files;
    return files;
  }
  /// From now on the `nth` write, sync or truncation fails, and the `more` operations after it.
  void fail(int nth, int more, int code) {
    countdown_ = nth;
    failures_ = more + 1;
    code_ = code;
  }
  /// Whether all the failures have happened.
  bool spent() const { return failures_ == 0; }
  void heal() { countdown_ = failures_ = 0; }

 private:
  FaultyFiles() : base_(sqlite3_vfs_find(nullptr)), layer_(*base_) {
    layer_.zName = "faulty";
    layer_.xOpen = &open;
    MUSTER_CHECK(sqlite3_vfs_register(&layer_, 1) == SQLITE_OK);
  }
  struct Methods {
    const sqlite3_io_methods* base = nullptr;
    sqlite3_io_methods layered = {};
  };
  static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
    FaultyFiles& files = install();
    const int result = files.base_->xOpen(files.base_, name, file, flags, out);
    if (file->pMethods == nullptr) return result;
    auto& methods = files.methods_[file->pMethods];
    if (!methods) {
      methods = std::make_unique<Methods>();
      methods->base = file->pMethods;
      methods->layered = *file->pMethods;
      methods->layered.xWrite = &write;
      methods->layered.xSync = &sync;
      methods->layered.xTruncate = &truncate;
      files.by_layered_[&methods->layered] = methods->base;
    }
    file->pMethods = &methods->layered;
    return result;
  }
  static const sqlite3_io_methods* base_of(sqlite3_file* file) {
    return install().by_layered_.at(file->pMethods);
  }
  static bool fails() {
    FaultyFiles& files = install();
    if (files.failures_ == 0) return false;
    if (files.countdown_ > 0) --files.countdown_;
    if (files.countdown_ > 0) return false;
    --files.failures_;
    return true;
  }
  static int write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 at) {
    return fails() ? install().code_ : base_of(file)->xWrite(file, bytes, size, at);
  }
  static int sync(sqlite3_file* file, int flags) {
    return fails() ? SQLITE_IOERR_FSYNC : base_of(file)->xSync(file, flags);
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    return fails() ? SQLITE_IOERR_TRUNCATE : base_of(file)->xTruncate(file, size);
  }

  sqlite3_vfs* base_;
  sqlite3_vfs layer_;
  std::map<const sqlite3_io_methods*, std::unique_ptr<Methods>> methods_;
  std::map<const sqlite3_io_methods*, const sqlite3_io_methods*> by_layered_;
  int countdown_ = 0;
  int failures_ = 0;
  int code_ = SQLITE_IOERR_WRITE;
};

}  // namespace muster::testing
