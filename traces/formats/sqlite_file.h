// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// One row while it is read. Columns count from 0, in the order in which they were asked for.
class SqliteRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}

  /// Nothing where it is NULL, no whole number, or the table has no such column.
  std::optional<std::int64_t> Whole(int column) const;
  /// Empty where it is NULL. Any bytes: SQLite does not look at what it is told to be UTF-8.
  std::string Text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

/// How a database begins.
inline constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);

/// The tables of an SQLite database in memory, each read once from end to end. The bytes are never written and stay
/// where they are. Made for files from elsewhere: nothing in them is executed (no views, triggers, virtual tables,
/// generated columns), and work is bounded by their size.
class SqliteFile {
 public:
  /// Fails with bad_input where it is no database or its list of tables is damaged.
  static Result<SqliteFile> Open(std::string_view bytes);

  bool Has(const std::string& table) const { return tables_.contains(table); }

  /// Calls `row` for each row of a table that the file has, or for none. Fails with bad_input where it is damaged.
  Status Read(const std::string& table, std::span<const std::string_view> columns,
              const std::function<void(const SqliteRow&)>& row);

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };
  using Database = std::unique_ptr<sqlite3, Close>;
  /// Steps of SQLite's machine that are left. Where it lies does not change: SQLite holds its address.
  struct Budget {
    std::int64_t steps = 0, rows = 0;
  };

  SqliteFile(Database database, std::unique_ptr<Budget> budget)
      : budget_(std::move(budget)), database_(std::move(database)) {}

  Status Run(const std::string& query, const std::function<void(const SqliteRow&)>& row);
  Status FindTables();

  std::unique_ptr<Budget> budget_;  // outlives the database
  Database database_;
  std::map<std::string, std::vector<std::string>> tables_;  // and their columns
};

}  // namespace tidemark
