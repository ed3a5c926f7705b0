// SPDX-License-Identifier: Apache-2.0
#include "sim/program/parse_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tidemark {
namespace {

/// Reads the value of one operator attribute, whatever its type.
struct FieldReader {
  LineReader& line;

  Status Read(std::int64_t& field) const {
    TIDEMARK_ASSIGN(field, line.TakeInteger("a number", 0, kMostFactor));
    return Done{};
  }
  Status Read(bool& field) const {
    const bool is_true = line.Take("true");
    if (!is_true && !line.Take("false")) {
      return line.Expected("'true' or 'false'");
    }
    field = is_true;
    return Done{};
  }
  Status Read(DType& field) const {
    TIDEMARK_ASSIGN(field, TakeOne<DType>(line, "a dtype"));
    return Done{};
  }
};

/// "m=4096": sets that attribute of `op`.
template <class Op>
Status TakeField(LineReader& line, Op& op) {
  LineReader ahead = line;
  TIDEMARK_ASSIGN(const std::string wanted, ahead.TakeName("an attribute"));
  std::vector<std::string> names;
  Status status = Done{};
  bool found = false;
  ForEachField(op, [&](std::string_view name, auto& field) {
    names.emplace_back(name);
    if (name == wanted) {
      found = true;
      line = ahead;
      status = line.Require("=");
      if (status) {
        status = FieldReader{line}.Read(field);
      }
    }
  });
  return found ? status : line.Expected(fmt::format("an attribute of {}", Op::kName), names);
}

/// "(m=4096, n=1024)"; attributes that are not there keep their defaults.
template <class Op>
Result<Operator> TakeAttributes(LineReader& line) {
  Op op;
  TIDEMARK_TRY(line.Require("("));
  while (!line.Is(")")) {
    TIDEMARK_TRY(TakeField(line, op));
    if (!line.Take(",")) {
      break;
    }
  }
  TIDEMARK_TRY(line.Require(")"));
  return Operator(op);
}

/// Tries the alternatives of Operator in turn.
template <std::size_t kAt = 0>
Result<Operator> TakeOperator(LineReader& line, std::vector<std::string> seen = {}) {
  if constexpr (kAt == std::variant_size_v<Operator>) {
    return line.Expected("an operator", seen);
  } else {
    using Op = std::variant_alternative_t<kAt, Operator>;
    if (line.Take(Op::kName)) {
      return TakeAttributes<Op>(line);
    }
    seen.emplace_back(Op::kName);
    return TakeOperator<kAt + 1>(line, std::move(seen));
  }
}

/// "1/4" or "3".
Result<Rational> TakeRational(LineReader& line) {
  TIDEMARK_ASSIGN(const std::int64_t numerator, line.TakeInteger("a factor", -kMostFactor, kMostFactor));
  if (!line.Take("/")) {
    return Rational(numerator);
  }
  TIDEMARK_ASSIGN(const std::int64_t denominator, line.TakeInteger("a denominator", 1, kMostFactor));
  return Rational(numerator, denominator);
}

/// "x32".
Result<std::int64_t> TakeCount(LineReader& line) {
  const std::string& text = line.token().text;
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  if (line.token().kind != Token::Kind::word || !text.starts_with('x') || text.size() == 1 ||
      std::from_chars(text.data() + 1, end, count).ptr != end || count < 1 || count > kMostIndex) {
    return line.Expected("a count such as 'x32'");
  }
  line.Advance();
  return count;
}

const std::vector<std::string>& Verbs() {
  static const std::vector<std::string> verbs = [] {
    std::vector<std::string> all = {"alloc", "free", "send",  "recv", "copy",   "scale", "record",
                                    "wait",  "sync", "begin", "end",  "repeat", "}"};
    for (const std::vector<std::string>& more : {NamesOf<Work>(), NamesOf<CollectiveKind>()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return verbs;
}

}  // namespace

Status NodeParser::Read(LineReader line, std::size_t number) {
  if (line.Take("}")) {
    return Close(line);
  }
  TIDEMARK_ASSIGN(Node node, TakeNode(line));
  TIDEMARK_TRY(line.RequireEnd());
  if (std::holds_alternative<Repeat>(node)) {
    open_.push_back({nodes_.size(), number});
  }
  nodes_.push_back(std::move(node));
  return Done{};
}

Status NodeParser::Close(const LineReader& line) {
  if (open_.empty()) {
    return line.At("expected a leaf or 'repeat', found '}' that closes nothing");
  }
  const std::size_t repeat = open_.back().node;
  open_.pop_back();
  std::get<Repeat>(nodes_[repeat]).size = static_cast<std::uint32_t>(nodes_.size() - repeat - 1);
  return LineReader(line).RequireEnd();
}

Result<std::vector<Node>> NodeParser::Finish() && {
  if (!open_.empty()) {
    return BadInput(
        fmt::format("expected '}}' for the 'repeat' of line {}, found the end of the text", open_.back().line));
  }
  return std::move(nodes_);
}

Result<Node> NodeParser::TakeNode(LineReader& line) {
  if (const std::optional<Work> work = TakeIf<Work>(line)) {
    return TakeCompute(line, *work);
  }
  if (const std::optional<CollectiveKind> kind = TakeIf<CollectiveKind>(line)) {
    return TakeCollective(line, *kind);
  }
  if (line.Take("alloc")) {
    TIDEMARK_ASSIGN(const BufferRef buffer, TakeRef(line));
    return Node(Alloc{buffer});
  }
  if (line.Take("free")) {
    TIDEMARK_ASSIGN(const BufferRef buffer, TakeRef(line));
    return Node(Free{buffer, line.Take("recorded")});
  }
  if (line.Take("end")) {
    TIDEMARK_ASSIGN(const Phase phase, TakeOne<Phase>(line, "a phase"));
    return Node(End{phase});
  }
  using Reader = Result<Node> (NodeParser::*)(LineReader&);
  static constexpr std::pair<std::string_view, Reader> kReaders[] = {
      {"copy", &NodeParser::TakeCopy},           {"scale", &NodeParser::TakeScale},
      {"record", &NodeParser::TakeMark<Record>}, {"wait", &NodeParser::TakeMark<Wait>},
      {"sync", &NodeParser::TakeSync},           {"begin", &NodeParser::TakeBegin},
      {"repeat", &NodeParser::TakeRepeat}};
  for (const auto& [verb, reader] : kReaders) {
    if (line.Take(verb)) {
      return (this->*reader)(line);
    }
  }
  if (line.Take("send")) {
    return TakeMessage<Send>(line, "into");
  }
  if (line.Take("recv")) {
    return TakeMessage<Recv>(line, "from");
  }
  return line.Expected("a leaf, 'repeat' or '}'", Verbs());
}

Result<Node> NodeParser::TakeCompute(LineReader& line, Work work) {
  Compute leaf;
  leaf.work = work;
  TIDEMARK_ASSIGN(leaf.name, TakeOperation(line));
  TIDEMARK_ASSIGN(leaf.op, TakeOperator(line));
  if (line.Take("times")) {
    TIDEMARK_ASSIGN(leaf.scale, TakeRational(line));
  }
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  if (line.Take("beside")) {
    TIDEMARK_TRY(line.Require("flight"));
    std::vector<FlightId> flights;
    while (flights.empty() || line.token().kind == Token::Kind::integer) {
      TIDEMARK_ASSIGN(flights.emplace_back(), TakeFlight(line));
    }
    leaf.beside = names_.flights.Intern(flights);
  }
  if (line.Take("own")) {
    leaf.own_heads = line.Take("heads");
    leaf.own_part = !leaf.own_heads;
    TIDEMARK_TRY(leaf.own_heads ? Status(Done{}) : line.Require("part"));
  }
  TIDEMARK_ASSIGN(leaf.reads, TakeRefs(line, "reads"));
  TIDEMARK_ASSIGN(leaf.writes, TakeRefs(line, "writes"));
  return Node(std::move(leaf));
}

Result<Node> NodeParser::TakeCollective(LineReader& line, CollectiveKind kind) {
  Collective leaf;
  leaf.kind = kind;
  TIDEMARK_ASSIGN(leaf.name, TakeOperation(line));
  TIDEMARK_ASSIGN(leaf.payload_elements, line.TakeInteger("a number of elements", 0, kMostElements));
  TIDEMARK_ASSIGN(leaf.dtype, TakeOne<DType>(line, "a dtype"));
  leaf.reduction = TakeIf<Reduction>(line).value_or(Reduction::none);
  if (line.Take("times")) {
    TIDEMARK_ASSIGN(leaf.scale, TakeRational(line));
  }
  TIDEMARK_TRY(line.Require("over"));
  TIDEMARK_ASSIGN(leaf.group, TakeDeclared(line, names_.groups, "a group"));
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  if (line.Take("in")) {
    TIDEMARK_TRY(line.Require("flight"));
    TIDEMARK_ASSIGN(leaf.flight, TakeFlight(line));
  }
  TIDEMARK_ASSIGN(leaf.reads, TakeRefs(line, "reads"));
  TIDEMARK_ASSIGN(leaf.writes, TakeRefs(line, "writes"));
  return Node(std::move(leaf));
}

template <class Message>
Result<Node> NodeParser::TakeMessage(LineReader& line, std::string_view toward) {
  Message leaf;
  TIDEMARK_ASSIGN(leaf.name, TakeOperation(line));
  TIDEMARK_ASSIGN(leaf.buffer, TakeRef(line));
  TIDEMARK_TRY(line.Require(toward));
  TIDEMARK_ASSIGN(leaf.channel, TakeDeclared(line, names_.channels, "a channel"));
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  return Node(leaf);
}

Result<Node> NodeParser::TakeCopy(LineReader& line) {
  Copy leaf;
  TIDEMARK_ASSIGN(leaf.name, TakeOperation(line));
  TIDEMARK_ASSIGN(const std::int64_t n_bytes, line.TakeInteger("a number of bytes", 0, kMostBytes));
  leaf.bytes = Bytes(n_bytes);
  TIDEMARK_TRY(line.Require("bytes"));
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  TIDEMARK_ASSIGN(leaf.reads, TakeRefs(line, "reads"));
  TIDEMARK_ASSIGN(leaf.writes, TakeRefs(line, "writes"));
  return Node(std::move(leaf));
}

Result<Node> NodeParser::TakeScale(LineReader& line) {
  Scale leaf;
  TIDEMARK_ASSIGN(leaf.name, TakeOperation(line));
  TIDEMARK_ASSIGN(leaf.buffer, TakeRef(line));
  TIDEMARK_TRY(line.Require("by"));
  TIDEMARK_ASSIGN(leaf.factor, TakeRational(line));
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  return Node(leaf);
}

template <class Mark>
Result<Node> NodeParser::TakeMark(LineReader& line) {
  Mark leaf;
  TIDEMARK_ASSIGN(leaf.event, TakeDeclared(line, names_.events, "an event"));
  TIDEMARK_ASSIGN(leaf.stream, TakeStream(line));
  return Node(leaf);
}

Result<Node> NodeParser::TakeSync(LineReader& line) {
  if (line.Take("device")) {
    return Node(HostSync{});
  }
  if (!line.Take("stream")) {
    return line.Expected("'device' or 'stream'", std::vector<std::string>{"device", "stream"});
  }
  TIDEMARK_ASSIGN(const StreamId stream, TakeDeclared(line, names_.streams, "a stream"));
  return Node(HostSync{stream});
}

Result<Node> NodeParser::TakeBegin(LineReader& line) {
  Begin leaf{.phase = Phase::forward, .microbatch = {.loop = {}, .offset = -1}};
  TIDEMARK_ASSIGN(leaf.phase, TakeOne<Phase>(line, "a phase"));
  for (const Side side : {Side::query, Side::passage}) {
    if (line.Take(Name(side))) {
      leaf.side = side;
      TIDEMARK_TRY(line.Require("chunk"));
      TIDEMARK_ASSIGN(leaf.microbatch, TakeIndex(line));
      return Node(leaf);
    }
  }
  if (line.Take("microbatch")) {
    TIDEMARK_ASSIGN(leaf.microbatch, TakeIndex(line));
  }
  return Node(leaf);
}

Result<Node> NodeParser::TakeRepeat(LineReader& line) {
  Repeat leaf;
  TIDEMARK_ASSIGN(const std::string loop, line.TakeName("a loop"));
  leaf.loop = names_.loops.Intern(loop);
  TIDEMARK_ASSIGN(leaf.from, line.TakeInteger("the first value", -kMostIndex, kMostIndex));
  TIDEMARK_TRY(line.Require(".."));
  TIDEMARK_ASSIGN(const std::int64_t last, line.TakeInteger("the last value", -kMostIndex, kMostIndex));
  const LineReader at_count = line;
  TIDEMARK_ASSIGN(leaf.count, TakeCount(line));
  leaf.step = last < leaf.from ? -1 : 1;
  if (line.Take("step")) {
    TIDEMARK_ASSIGN(leaf.step, line.TakeInteger("a step", -kMostIndex, kMostIndex));
  }
  if (leaf.step == 0 || leaf.from + (leaf.count - 1) * leaf.step != last) {
    return at_count.At(fmt::format("expected as many iterations as there are numbers from {} to {}, found {}",
                                   leaf.from, last, leaf.count));
  }
  TIDEMARK_TRY(line.Require("{"));
  return Node(leaf);
}

Result<NameId> NodeParser::TakeOperation(LineReader& line) {
  TIDEMARK_ASSIGN(const std::string name, line.TakeName("the operation's name"));
  return names_.operations.Intern(name);
}

Result<StreamId> NodeParser::TakeStream(LineReader& line) {
  TIDEMARK_TRY(line.Require("on"));
  return TakeDeclared(line, names_.streams, "a stream");
}

Result<BufferRef> NodeParser::TakeRef(LineReader& line) {
  BufferRef ref;
  TIDEMARK_ASSIGN(ref.buffer, TakeDeclared(line, names_.buffers, "a buffer"));
  for (Index& index : ref.index) {
    if (!line.Take("[")) {
      break;
    }
    TIDEMARK_ASSIGN(index, TakeIndex(line));
    TIDEMARK_TRY(line.Require("]"));
  }
  return ref;
}

/// "3", "layer", "layer-1", "layer%2", "(layer+1)%2".
Result<Index> NodeParser::TakeIndex(LineReader& line) {
  const bool in_parentheses = line.Take("(");
  TIDEMARK_ASSIGN(Index index, TakeSum(line));
  if (in_parentheses) {
    TIDEMARK_TRY(line.Require(")"));
  }
  if (line.Take("%")) {
    TIDEMARK_ASSIGN(index.modulus, line.TakeInteger("a modulus", 1, kMostIndex));
  }
  return index;
}

Result<Index> NodeParser::TakeSum(LineReader& line) {
  Index index;
  if (line.token().kind != Token::Kind::word && line.token().kind != Token::Kind::quoted) {
    TIDEMARK_ASSIGN(index.offset, line.TakeInteger("an index", -kMostIndex, kMostIndex));
    return index;
  }
  const LineReader at_loop = line;
  TIDEMARK_ASSIGN(index.loop, TakeDeclared(line, names_.loops, "a loop"));
  if (std::none_of(open_.begin(), open_.end(),
                   [&](const OpenRepeat& open) { return std::get<Repeat>(nodes_[open.node]).loop == index.loop; })) {
    return at_loop.Expected("a loop around this line");
  }
  if (line.Take("+")) {
    TIDEMARK_ASSIGN(index.offset, line.TakeInteger("an offset", 0, kMostIndex));
  } else if (line.Is("-")) {
    TIDEMARK_ASSIGN(index.offset, line.TakeInteger("an offset", -kMostIndex, 0));
  }
  return index;
}

Result<std::vector<BufferRef>> NodeParser::TakeRefs(LineReader& line, std::string_view word) {
  std::vector<BufferRef> refs;
  if (line.Take(word)) {
    do {
      TIDEMARK_ASSIGN(const BufferRef ref, TakeRef(line));
      refs.push_back(ref);
    } while (line.Take(","));
  }
  return refs;
}

}  // namespace tidemark
