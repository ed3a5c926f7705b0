// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/program/parse_node.h"
#include "sim/program/parse_tables.h"
#include "sim/program/text.h"
#include "sim/program/token.h"

namespace tidemark {
namespace {

class ProgramParser {
 public:
  Result<Program> Run(std::string_view text) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      TIDEMARK_TRY(Line(LineReader(line, ++number_)));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    if (!has_role_) {
      return BadInput("expected a line such as 'role 0 \"stage 0\", 1 ranks', found the end of the text");
    }
    TIDEMARK_ASSIGN(program_.nodes, std::move(nodes_).Finish());
    program_.names = names_.operations.names();
    program_.loops = names_.loops.names();
    program_.flight_sets = names_.flights.sets();
    return std::move(program_);
  }

 private:
  using Reader = Status (ProgramParser::*)(LineReader&);
  struct Section {
    std::string_view title;
    Reader read;
  };

  Status Line(LineReader line);
  Status BeginSection(const LineReader& line);
  Status ReadRole(LineReader& line);
  Status ReadLayers(LineReader& line);
  Status ReadGroup(LineReader& line);
  Status ReadChannel(LineReader& line);
  Status ReadStream(LineReader& line);
  Status ReadEvent(LineReader& line);
  Status ReadBuffer(LineReader& line);
  Status ReadBase(LineReader& line, Buffer& buffer);
  Status ReadSlices(LineReader& line, Buffer& buffer);
  Status ReadExtents(LineReader& line, Buffer& buffer);
  Status ReadFlags(LineReader& line, Buffer& buffer);
  Status ReadHolding(LineReader& line, Buffer& buffer);
  Status ReadNode(LineReader& line) { return nodes_.Read(line, number_); }

  /// A name that its table does not have yet.
  template <class IdType>
  Result<std::string> TakeNew(LineReader& line, NameTable<IdType>& table, std::string_view what) {
    const LineReader at_name = line;
    TIDEMARK_ASSIGN(std::string name, line.TakeName(what));
    if (table.Find(name)) {
      return at_name.At(fmt::format("expected {} of its own, found '{}' a second time", what, name));
    }
    table.Intern(name);
    return name;
  }

  Program program_;
  NameTables names_;
  NodeParser nodes_{names_};
  Reader read_ = nullptr;   ///< of the current section
  std::size_t number_ = 0;  ///< of the current line
  bool has_role_ = false;
};

Status ProgramParser::Line(LineReader line) {
  if (line.AtEnd()) {
    return Done{};
  }
  LineReader ahead = line;
  ahead.Advance();
  if (line.token().kind == Token::Kind::word && ahead.Is(":")) {
    return BeginSection(line);
  }
  if (!has_role_) {
    return ReadRole(line);
  }
  if (read_ == nullptr) {
    return line.Expected("a section such as 'streams:'");
  }
  TIDEMARK_TRY((this->*read_)(line));
  return Done{};
}

Status ProgramParser::BeginSection(const LineReader& line) {
  static constexpr Section kSections[] = {
      {"layers", &ProgramParser::ReadLayers},    {"groups", &ProgramParser::ReadGroup},
      {"channels", &ProgramParser::ReadChannel}, {"streams", &ProgramParser::ReadStream},
      {"events", &ProgramParser::ReadEvent},     {"buffers", &ProgramParser::ReadBuffer},
      {"program", &ProgramParser::ReadNode}};
  std::vector<std::string> titles;
  for (const Section& section : kSections) {
    titles.emplace_back(section.title);
    LineReader rest = line;
    if (rest.Take(section.title)) {
      if (read_ == &ProgramParser::ReadNode) {
        return line.At(fmt::format("expected 'program:' to be the last section, found '{}:' after it", section.title));
      }
      read_ = section.read;
      TIDEMARK_TRY(rest.Require(":"));
      return rest.RequireEnd();
    }
  }
  return line.Expected("a section", titles);
}

/// role 0 "stage 0", 8 ranks
Status ProgramParser::ReadRole(LineReader& line) {
  TIDEMARK_TRY(line.Require("role"));
  TIDEMARK_ASSIGN(program_.role_index, line.TakeInteger("the role's index", 0, kMostIndex));
  TIDEMARK_ASSIGN(program_.role, line.TakeName("the role's name"));
  TIDEMARK_TRY(line.Require(","));
  TIDEMARK_ASSIGN(program_.ranks, line.TakeInteger("a number of ranks", 1, kMostIndex));
  TIDEMARK_TRY(line.Require("ranks"));
  has_role_ = true;
  return line.RequireEnd();
}

/// layer  from 20
Status ProgramParser::ReadLayers(LineReader& line) {
  LayerRun run;
  TIDEMARK_ASSIGN(run.block, line.TakeName("a block of layers"));
  TIDEMARK_TRY(line.Require("from"));
  TIDEMARK_ASSIGN(run.first, line.TakeInteger("the model's number of its first layer", 0, kMostIndex));
  program_.layers.push_back(std::move(run));
  return line.RequireEnd();
}

/// dp  8 ranks, 8 per node
Status ProgramParser::ReadGroup(LineReader& line) {
  Group group;
  TIDEMARK_ASSIGN(group.name, TakeNew(line, names_.groups, "a group"));
  TIDEMARK_ASSIGN(group.size, line.TakeInteger("a number of ranks", 1, kMostIndex));
  TIDEMARK_TRY(line.Require("ranks"));
  TIDEMARK_TRY(line.Require(","));
  TIDEMARK_ASSIGN(group.ranks_per_node, line.TakeInteger("a number of ranks", 1, kMostIndex));
  TIDEMARK_TRY(line.Require("per"));
  TIDEMARK_TRY(line.Require("node"));
  program_.groups.push_back(std::move(group));
  return line.RequireEnd();
}

/// forward.0  role 0 -> role 1, crosses nodes
Status ProgramParser::ReadChannel(LineReader& line) {
  Channel channel;
  TIDEMARK_ASSIGN(channel.name, TakeNew(line, names_.channels, "a channel"));
  TIDEMARK_TRY(line.Require("role"));
  TIDEMARK_ASSIGN(channel.from_role, line.TakeInteger("a role's index", 0, kMostIndex));
  TIDEMARK_TRY(line.Require("->"));
  TIDEMARK_TRY(line.Require("role"));
  TIDEMARK_ASSIGN(channel.to_role, line.TakeInteger("a role's index", 0, kMostIndex));
  if (line.Take(",")) {
    TIDEMARK_TRY(line.Require("crosses"));
    TIDEMARK_TRY(line.Require("nodes"));
    channel.crosses_nodes = true;
  }
  program_.channels.push_back(std::move(channel));
  return line.RequireEnd();
}

/// gather  collective
Status ProgramParser::ReadStream(LineReader& line) {
  Stream stream;
  TIDEMARK_ASSIGN(stream.name, TakeNew(line, names_.streams, "a stream"));
  TIDEMARK_ASSIGN(stream.kind, TakeOne<StreamKind>(line, "a kind of stream"));
  program_.streams.push_back(std::move(stream));
  return line.RequireEnd();
}

Status ProgramParser::ReadEvent(LineReader& line) {
  TIDEMARK_ASSIGN(std::string event, TakeNew(line, names_.events, "an event"));
  program_.events.push_back(std::move(event));
  return line.RequireEnd();
}

/// shard[32]   parameter  1409286 fp32  born on main, resident, kept
/// gathered    activation  409600 bf16  view of pool
/// slot[2]     bucket        4096 bf16  slices of bucket at 4096 and bucket at 0
Status ProgramParser::ReadBuffer(LineReader& line) {
  Buffer buffer;
  TIDEMARK_ASSIGN(buffer.name, TakeNew(line, names_.buffers, "a buffer"));
  TIDEMARK_TRY(ReadExtents(line, buffer));
  TIDEMARK_ASSIGN(buffer.category, TakeOne<Category>(line, "a category"));
  TIDEMARK_ASSIGN(buffer.elements, line.TakeInteger("a number of elements", 0, kMostElements));
  TIDEMARK_ASSIGN(buffer.dtype, TakeOne<DType>(line, "a dtype"));
  const bool names_view = line.Take("view");
  if (names_view || line.Take("slices")) {
    TIDEMARK_TRY(line.Require("of"));
    TIDEMARK_TRY(names_view ? ReadBase(line, buffer) : ReadSlices(line, buffer));
    while (line.Take(",")) {
      TIDEMARK_TRY(line.Require("holds"));
      TIDEMARK_TRY(ReadHolding(line, buffer));
    }
    program_.buffers.push_back(std::move(buffer));
    return line.RequireEnd();
  }
  TIDEMARK_TRY(line.Require("born"));
  TIDEMARK_TRY(line.Require("on"));
  TIDEMARK_ASSIGN(buffer.stream, TakeDeclared(line, names_.streams, "a stream"));
  TIDEMARK_TRY(ReadFlags(line, buffer));
  program_.buffers.push_back(std::move(buffer));
  return line.RequireEnd();
}

Status ProgramParser::ReadBase(LineReader& line, Buffer& buffer) {
  TIDEMARK_ASSIGN(buffer.base, TakeDeclared(line, names_.buffers, "a buffer"));
  buffer.stream = program_.buffers[buffer.base.index].stream;
  return Done{};
}

Status ProgramParser::ReadSlices(LineReader& line, Buffer& buffer) {
  do {
    BufferSlice slice;
    TIDEMARK_ASSIGN(slice.of, TakeDeclared(line, names_.buffers, "a buffer"));
    TIDEMARK_TRY(line.Require("at"));
    TIDEMARK_ASSIGN(slice.first, line.TakeInteger("the element at which it begins", 0, kMostElements));
    buffer.slices.push_back(slice);
  } while (line.Take("and"));
  buffer.stream = program_.buffers[buffer.slices.front().of.index].stream;
  return Done{};
}

Status ProgramParser::ReadExtents(LineReader& line, Buffer& buffer) {
  const LineReader at_extents = line;
  for (std::int64_t& extent : buffer.extents) {
    if (!line.Take("[")) {
      break;
    }
    TIDEMARK_ASSIGN(extent, line.TakeInteger("a number of buffers", 0, kMostInFamily));
    TIDEMARK_TRY(line.Require("]"));
  }
  if (buffer.count() > kMostInFamily) {
    return at_extents.At(
        fmt::format("expected at most {} buffers in a family, found {}", kMostInFamily, buffer.count()));
  }
  return Done{};
}

Status ProgramParser::ReadFlags(LineReader& line, Buffer& buffer) {
  while (line.Take(",")) {
    if (line.Take("host")) {
      TIDEMARK_TRY(line.Require("memory"));
      buffer.place = Place::host;
    } else if (line.Take("resident")) {
      buffer.resident = true;
    } else if (line.Take("kept")) {
      buffer.kept = true;
    } else if (line.Take("holds")) {
      TIDEMARK_TRY(ReadHolding(line, buffer));
    } else {
      return line.Expected("'host memory', 'resident', 'kept' or 'holds'",
                           std::vector<std::string>{"host", "resident", "kept", "holds"});
    }
  }
  return Done{};
}

/// holds own together of 4 masters frozen unpadded aligned 64 multiple 128 from layer head.norm layer.wq[3..5]
Status ProgramParser::ReadHolding(LineReader& line, Buffer& buffer) {
  Holding holding;
  TIDEMARK_ASSIGN(holding.parts, TakeOne<Parts>(line, "which parts"));
  TIDEMARK_ASSIGN(holding.cut, TakeOne<Cut>(line, "how it is cut"));
  TIDEMARK_TRY(line.Require("of"));
  TIDEMARK_ASSIGN(holding.ranks, line.TakeInteger("a number of ranks", 1, kMostIndex));
  holding.masters = line.Take("masters");
  holding.frozen = line.Take("frozen");
  holding.unpadded = line.Take("unpadded");
  if (line.Take("aligned")) {
    TIDEMARK_ASSIGN(holding.aligned, line.TakeInteger("a number of elements", 1, kMostElements));
  }
  if (line.Take("multiple")) {
    TIDEMARK_ASSIGN(holding.multiple, line.TakeInteger("a number of elements", 1, kMostElements));
  }
  TIDEMARK_TRY(line.Require("from"));
  while (!line.AtEnd() && !line.Is(",")) {
    HeldRun run;
    TIDEMARK_ASSIGN(run.name, line.TakeName("a block or a parameter"));
    if (line.Take("[")) {
      TIDEMARK_ASSIGN(run.first, line.TakeInteger("a block's number", -kMostInFamily, kMostInFamily));
      std::int64_t last = run.first;
      if (line.Take("..")) {
        TIDEMARK_ASSIGN(last, line.TakeInteger("a block's number", run.first, kMostInFamily));
      }
      run.count = last - run.first + 1;
      TIDEMARK_TRY(line.Require("]"));
    }
    holding.of.push_back(std::move(run));
  }
  buffer.holds.push_back(std::move(holding));
  return Done{};
}

}  // namespace

Result<Program> ParseProgram(std::string_view text) { return ProgramParser().Run(text); }

}  // namespace tidemark
