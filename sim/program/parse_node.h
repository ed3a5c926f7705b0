// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "sim/program/parse_tables.h"
#include "sim/program/program.h"
#include "sim/program/token.h"

namespace tidemark {

/// Reads the lines of a program's tree one by one. All tables but those of operations and loops are complete; names of
/// operations and loops are numbered as they come.
class NodeParser {
 public:
  explicit NodeParser(NameTables& names) : names_(names) {}

  /// Reads the rest of a line: a leaf, the head of a Repeat, or its closing brace.
  Status Read(LineReader line, std::size_t number);

  /// The tree, once every Repeat is closed.
  Result<std::vector<Node>> Finish() &&;

 private:
  struct OpenRepeat {
    std::size_t node;
    std::size_t line;
  };

  Result<Node> TakeNode(LineReader& line);
  Result<Node> TakeCompute(LineReader& line, Work work);
  Result<Node> TakeCollective(LineReader& line, CollectiveKind kind);
  template <class Message>
  Result<Node> TakeMessage(LineReader& line, std::string_view toward);
  Result<Node> TakeCopy(LineReader& line);
  Result<Node> TakeScale(LineReader& line);
  template <class Mark>
  Result<Node> TakeMark(LineReader& line);
  Result<Node> TakeSync(LineReader& line);
  Result<Node> TakeBegin(LineReader& line);
  Result<Node> TakeRepeat(LineReader& line);
  Status Close(const LineReader& line);

  Result<NameId> TakeOperation(LineReader& line);
  Result<StreamId> TakeStream(LineReader& line);
  Result<BufferRef> TakeRef(LineReader& line);
  Result<Index> TakeIndex(LineReader& line);
  Result<Index> TakeSum(LineReader& line);
  Result<std::vector<BufferRef>> TakeRefs(LineReader& line, std::string_view word);

  NameTables& names_;
  std::vector<Node> nodes_;
  std::vector<OpenRepeat> open_;
};

}  // namespace tidemark
