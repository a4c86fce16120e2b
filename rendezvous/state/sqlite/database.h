// A C++ wrapper of SQLite: statements, transactions, and errors as values.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/system/result.hpp>

namespace muster {

struct DatabaseError {
  // The constructors keep this from being an aggregate: otherwise a number that is returned as a
  // DatabaseResult<std::int64_t> could also become an error.
  DatabaseError() = default;
  DatabaseError(int error_code, std::string error_text)
      : code(error_code), text(std::move(error_text)) {}
  int code = 0;  // SQLite's extended result code.
  std::string text;
};
template <typename T>
using DatabaseResult = boost::system::result<T, DatabaseError>;

/// One prepared statement. Its database must outlive it.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  void bind(int index, std::string_view text);
  void bind(int index, std::int64_t number);
  /// Runs the statement up to its next row. Returns whether there is one.
  DatabaseResult<bool> step();
  /// For statements without rows: runs it and resets it, so that it can be bound again.
  DatabaseResult<void> run();
  std::string text(int column) const;
  std::int64_t number(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  /// Opens the file, or creates it.
  static DatabaseResult<Database> open(const std::string& path);

  DatabaseResult<void> execute(const std::string& sql);
  DatabaseResult<Statement> prepare(std::string_view sql);
  /// The first column of the first row, as a number.
  DatabaseResult<std::int64_t> number(const std::string& sql);
  DatabaseResult<std::string> text(const std::string& sql);
  /// For a file that must not be changed: closing it does not write the write-ahead log back.
  void disable_checkpoint_on_close();

 private:
  explicit Database(sqlite3* connection) : connection_(connection) {}
  DatabaseError error() const;
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close(connection); }
  };
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace muster
