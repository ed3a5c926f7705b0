// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/sqlite_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tidemark {
namespace {

constexpr int kStepsAtOnce = 10000;          ///< between two looks at the budget
constexpr std::int64_t kStepsPerByte = 100;  ///< a row of 4 bytes takes less than 50 steps, and no table is read twice
constexpr std::int64_t kSteps = 1'000'000;   ///< of a file of any size
constexpr int kLongestValue = 1 << 20;       ///< bytes of a text, or of a statement in the list of tables
constexpr std::size_t kWriteVersion = 18;    ///< byte of the header: 2 is a write-ahead log

Error Damaged(sqlite3* database) {
  return BadInput(fmt::format("a sound SQLite database was expected, but {}",
                              sqlite3_errcode(database) == SQLITE_INTERRUPT ? "reading it does not come to an end"
                                                                            : sqlite3_errmsg(database)),
                  "export it again: nsys export --type sqlite REPORT.nsys-rep");
}

/// https://sqlite.org/security.html: what to do about files from elsewhere.
void Distrust(sqlite3* database) {
  for (const auto& [setting, value] : {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1),
                                       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                                       {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
                                       {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
                                       {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}}) {
    sqlite3_db_config(database, setting, value, nullptr);
  }
  for (const auto& [limit, value] : {std::pair(SQLITE_LIMIT_LENGTH, kLongestValue),
                                     {SQLITE_LIMIT_SQL_LENGTH, kLongestValue},
                                     {SQLITE_LIMIT_COLUMN, 200},
                                     {SQLITE_LIMIT_EXPR_DEPTH, 10},
                                     {SQLITE_LIMIT_COMPOUND_SELECT, 3},
                                     {SQLITE_LIMIT_VDBE_OP, 25000},
                                     {SQLITE_LIMIT_FUNCTION_ARG, 8},
                                     {SQLITE_LIMIT_ATTACHED, 0},
                                     {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50},
                                     {SQLITE_LIMIT_VARIABLE_NUMBER, 10},
                                     {SQLITE_LIMIT_TRIGGER_DEPTH, 1}}) {
    sqlite3_limit(database, limit, value);
  }
}

std::string Identifier(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) {
    quoted.append(c == '"' ? 2 : 1, c);
  }
  return quoted + '"';
}

}  // namespace

std::optional<std::int64_t> SqliteRow::Whole(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_INTEGER
             ? std::optional(std::int64_t{sqlite3_column_int64(statement_, column)})
             : std::nullopt;
}

std::string SqliteRow::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  return text == nullptr ? std::string()
                         : std::string(reinterpret_cast<const char*>(text),
                                       static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

Result<SqliteFile> SqliteFile::Open(std::string_view bytes) {
  if (!bytes.starts_with(kSqliteMagic) || bytes.size() < 512) {
    return BadInput("an SQLite database was expected, but the file is cut off in its header");
  }
  if (bytes[kWriteVersion] == 2) {
    return BadInput("this database was left open with a write-ahead log, so that a part of it may be in another file",
                    "sqlite3 FILE 'PRAGMA journal_mode=DELETE' puts it together");
  }
  sqlite3* opened = nullptr;
  const int said = sqlite3_open_v2(":memory:", &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(opened);
  TIDEMARK_CHECK(said == SQLITE_OK);
  const auto size = static_cast<std::int64_t>(bytes.size());
  // SQLite does not write to what it is told to only read.
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  if (sqlite3_deserialize(opened, "main", data, size, size, SQLITE_DESERIALIZE_READONLY) != SQLITE_OK) {
    return Damaged(opened);
  }
  Distrust(opened);
  auto budget = std::make_unique<Budget>();
  budget->steps = kSteps + std::min(size, std::numeric_limits<std::int64_t>::max() / 1000) * kStepsPerByte;
  budget->rows = size / 4;  // a row has a pointer of two bytes and a cell of two bytes at least
  sqlite3_progress_handler(
      opened, kStepsAtOnce, [](void* left) { return (static_cast<Budget*>(left)->steps -= kStepsAtOnce) < 0 ? 1 : 0; },
      budget.get());
  SqliteFile file(std::move(database), std::move(budget));
  TIDEMARK_TRY(file.FindTables());
  return file;
}

Status SqliteFile::Run(const std::string& query, const std::function<void(const SqliteRow&)>& row) {
  sqlite3_stmt* prepared = nullptr;
  const int said =
      sqlite3_prepare_v2(database_.get(), query.data(), static_cast<int>(query.size()), &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
  if (said != SQLITE_OK) {
    return Damaged(database_.get());
  }
  int step = SQLITE_ROW;
  while ((step = sqlite3_step(prepared)) == SQLITE_ROW) {
    if (--budget_->rows < 0) {
      return BadInput("a sound SQLite database was expected, but its pages go round in circles");
    }
    row(SqliteRow(prepared));
  }
  return step == SQLITE_DONE ? Status(Done{}) : Status(Damaged(database_.get()));
}

/// Real tables only: a virtual one has no page of its own. Generated columns are not among those of table_info.
Status SqliteFile::FindTables() {
  std::vector<std::string> names;
  TIDEMARK_TRY(Run("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0",
                   [&](const SqliteRow& row) { names.push_back(row.Text(0)); }));
  for (const std::string& name : names) {
    std::vector<std::string>& columns = tables_[name];
    TIDEMARK_TRY(Run("PRAGMA table_info(" + Identifier(name) + ")",
                     [&](const SqliteRow& row) { columns.push_back(row.Text(1)); }));
  }
  return Done{};
}

Status SqliteFile::Read(const std::string& table, std::span<const std::string_view> columns,
                        const std::function<void(const SqliteRow&)>& row) {
  const auto found = tables_.find(table);
  if (found == tables_.end()) {
    return Done{};
  }
  std::string list;
  for (const std::string_view column : columns) {
    const bool is_there = std::find(found->second.begin(), found->second.end(), column) != found->second.end();
    list += (list.empty() ? "" : ", ") + (is_there ? Identifier(column) : "NULL");
  }
  return Run(fmt::format("SELECT {} FROM {} NOT INDEXED", list, Identifier(table)), row).At(table);
}

}  // namespace tidemark
