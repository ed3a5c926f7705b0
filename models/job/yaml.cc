// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/job/fields.h"
#include "models/job/read.h"
#include "models/machine/presets.h"

namespace tidemark {
namespace {

/// Lines of "key: value  # source", sections nested by their dots. Keys of one section must follow each other.
class Writer {
 public:
  void Add(const std::string& key, const std::string& value, const std::string& source) {
    Enter(key.substr(0, key.rfind('.') + 1));
    text_ += fmt::format("{}{}: {}{}\n", Indent(), key.substr(key.rfind('.') + 1), value, Comment(source));
  }

  void AddLine(const std::string& line) { text_ += line + "\n"; }

  const std::string& text() const { return text_; }

 private:
  /// Opens the sections of `path` ("network.", "machine.context.") that are not open.
  void Enter(const std::string& path) {
    std::size_t at = 0;
    while (at < path.size()) {
      const std::size_t dot = path.find('.', at);
      const std::string section = path.substr(0, dot + 1);
      open_ = section.substr(0, at);
      if (!opened_.starts_with(section)) {
        text_ += fmt::format("{}{}:\n", Indent(), path.substr(at, dot - at));
      }
      at = dot + 1;
    }
    open_ = path;
    opened_ = path;
  }

  std::string Indent() const {
    return std::string(static_cast<std::size_t>(2 * std::count(open_.begin(), open_.end(), '.')), ' ');
  }

  /// Sources hold file names; a line break in one must not break the comment.
  static std::string Comment(std::string source) {
    std::replace_if(
        source.begin(), source.end(), [](unsigned char letter) { return letter < ' '; }, '?');
    const bool is_place = source.find(':') != std::string::npos;
    return source.empty() ? "" : fmt::format("  # {}{}", is_place ? "from " : "", source);
  }

  std::string text_;
  std::string open_;    ///< the section that is being written, with its dot
  std::string opened_;  ///< the sections whose heads are written
};

std::string RowYaml(const TableRow& row) {
  std::vector<std::string> fields;
  for (const Field<TableRow>& field : TableRowFields()) {
    if (const std::string value = field.write(row); !value.empty()) {
      fields.push_back(fmt::format("{}: {}", field.key, value));
    }
  }
  return fmt::format("{{{}}}", fmt::join(fields, ", "));
}

void WriteNetwork(Writer& writer, const Job& job) {
  const Network& network = job.network;
  writer.Add("network.name", QuoteYaml(network.name), job.SourceOf("network.name"));
  if (const auto* decoder = std::get_if<Decoder>(&network.shape)) {
    for (const Field<Decoder>& field : DecoderFields()) {
      const std::string key = "network." + field.key;
      if (const std::string value = field.write(*decoder); !value.empty()) {
        writer.Add(key, value, job.SourceOf(key));
      }
    }
  }
  if (const auto* encoders = std::get_if<DualEncoder>(&network.shape)) {
    for (const Field<DualEncoder>& field : DualEncoderFields()) {
      const std::string key = "network.dual_encoder." + field.key;
      const std::string value = field.write(*encoders);
      if (!value.empty() && (!encoders->shared || !field.key.starts_with("second."))) {
        writer.Add(key, value, job.SourceOf(key));
      }
    }
  }
  if (!network.trainable.empty()) {
    std::vector<std::string> globs;
    for (const std::string& glob : network.trainable) {
      globs.push_back(fmt::format("{}", QuoteYaml(glob)));
    }
    writer.Add("network.trainable", fmt::format("[{}]", fmt::join(globs, ", ")), job.SourceOf("network.trainable"));
  }
  if (const auto* table = std::get_if<Table>(&network.shape)) {
    for (const Field<Table>& field : TableFields()) {
      const std::string key = "network." + field.key;
      if (const std::string value = field.write(*table); value != field.write(Table())) {
        writer.Add(key, value, job.SourceOf(key));
      }
    }
    writer.Add("network.table", "", job.SourceOf("network.table"));
    for (const TableRow& row : table->rows) {
      writer.AddLine("    - " + RowYaml(row));
    }
  }
}

/// A preset by its name; any other machine in full, since the file it came from may not be there.
void WriteMachine(Writer& writer, const Job& job) {
  const Result<Machine> preset = FindMachine(job.machine.name, {});
  if (preset && *preset == job.machine) {
    writer.Add("machine", QuoteYaml(job.machine.name), job.SourceOf("machine"));
    return;
  }
  for (const auto& [key, value] : MachineYaml(job.machine)) {
    writer.Add("machine." + key, value, {});
  }
}

}  // namespace

std::string JobYaml(const Job& job) {
  Writer writer;
  WriteNetwork(writer, job);
  WriteMachine(writer, job);
  writer.Add("strategy", QuoteYaml(job.strategy), job.SourceOf("strategy"));
  for (const Field<Job>& field : JobFields()) {
    const bool said = field.write && (job.sources.empty() || job.sources.contains(field.key));
    if (const std::string value = said ? field.write(job) : std::string(); !value.empty()) {
      writer.Add(field.key, value, job.SourceOf(field.key));
    }
  }
  std::vector<std::string> assumed;
  for (const auto& [key, source] : job.sources) {
    if (source == "assumed") {
      assumed.push_back(key);
    }
  }
  if (!assumed.empty()) {
    writer.AddLine(fmt::format("assumed: [{}]", fmt::join(assumed, ", ")));
  }
  return writer.text();
}

std::string TableYaml(const std::string& name, const Table& table) {
  std::vector<std::string> fields = {"name: " + QuoteYaml(name)};
  for (const Field<Table>& field : TableFields()) {
    fields.push_back(fmt::format("{}: {}", field.key, field.write(table)));
  }
  std::vector<std::string> rows;
  for (const TableRow& row : table.rows) {
    rows.push_back(RowYaml(row));
  }
  return fmt::format("{{{}, table: [{}]}}", fmt::join(fields, ", "), fmt::join(rows, ", "));
}

}  // namespace tidemark
