// SPDX-License-Identifier: Apache-2.0
#include "sim/program/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <type_traits>

#include "base/rational_text.h"
#include "sim/program/entry_name.h"

namespace tidemark {
namespace {

bool IsBare(std::string_view name) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto is_inner = [&](char c) {
    return is_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == ':' || c == '/';
  };
  return !name.empty() && is_letter(name.front()) && std::all_of(name.begin(), name.end(), is_inner) &&
         name.find("..") == std::string_view::npos && name.back() != '.' && name.back() != ':';
}

/// A name as the parser reads it back: bare where possible.
std::string Quoted(std::string_view name) {
  if (IsBare(name)) {
    return std::string(name);
  }
  std::string quoted = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

/// The quoted name that `id` has in `table`.
template <class Table, class Tag>
std::string NameIn(const Table& table, Id<Tag> id) {
  return id.index < table.size() ? Quoted(NameOf(table[id.index])) : fmt::format("\"?{}\"", id.index);
}

/// How many dimensions a family is declared with.
std::size_t Dimensions(const Buffer& buffer) { return buffer.extents[1] != 1 ? 2 : buffer.extents[0] != 1 ? 1 : 0; }

/// One operator attribute as "name=value"; nothing for an attribute with its default value.
class AttributePrinter {
 public:
  template <class Op>
  static std::string Print(Op op) {
    AttributePrinter printer;
    Op standard;
    ForEachField(standard, [&](std::string_view, auto value) { printer.defaults_.push_back(Text(value)); });
    ForEachField(op, [&](std::string_view name, auto value) { printer.Add(name, Text(value)); });
    return fmt::format("{}({})", Op::kName, printer.text_);
  }

 private:
  static std::string Text(std::int64_t value) { return fmt::format("{}", value); }
  static std::string Text(bool value) { return value ? "true" : "false"; }
  static std::string Text(DType value) { return std::string(Name(value)); }

  void Add(std::string_view name, const std::string& value) {
    if (value != defaults_[next_++]) {
      text_ += fmt::format("{}{}={}", text_.empty() ? "" : ", ", name, value);
    }
  }

  std::vector<std::string> defaults_;
  std::size_t next_ = 0;
  std::string text_;
};

/// Prints the nodes of one program, one overload a leaf.
class NodePrinter {
 public:
  explicit NodePrinter(const Program& program) : program_(program) {}

  std::string operator()(const Alloc& leaf) const { return "alloc " + Ref(leaf.buffer); }
  std::string operator()(const Free& leaf) const {
    return "free " + Ref(leaf.buffer) + (leaf.recorded ? " recorded" : "");
  }

  std::string operator()(const Compute& leaf) const {
    const std::string op = std::visit([](const auto& any) { return AttributePrinter::Print(any); }, leaf.op);
    const std::string scale = leaf.scale == Rational(1) ? "" : " times " + Text(leaf.scale);
    const char* own = leaf.own_part ? " own part" : leaf.own_heads ? " own heads" : "";
    return fmt::format("{} {} {}{}{}{}{}{}", Name(leaf.work), NameIn(program_.names, leaf.name), op, scale,
                       On(leaf.stream), Beside(program_.FlightsBeside(leaf)), own, Accesses(leaf));
  }

  std::string operator()(const Collective& leaf) const {
    std::string how;
    if (leaf.reduction != Reduction::none) {
      how += fmt::format(" {}", Name(leaf.reduction));
    }
    if (leaf.scale != Rational(1)) {
      how += " times " + Text(leaf.scale);
    }
    const std::string flight = leaf.flight.valid() ? fmt::format(" in flight {}", leaf.flight.index) : "";
    return fmt::format("{} {} {} {}{} over {}{}{}{}", Name(leaf.kind), NameIn(program_.names, leaf.name),
                       leaf.payload_elements, Name(leaf.dtype), how, NameIn(program_.groups, leaf.group),
                       On(leaf.stream), flight, Accesses(leaf));
  }

  std::string operator()(const Send& leaf) const {
    return fmt::format("send {} {} into {}{}", NameIn(program_.names, leaf.name), Ref(leaf.buffer),
                       NameIn(program_.channels, leaf.channel), On(leaf.stream));
  }
  std::string operator()(const Recv& leaf) const {
    return fmt::format("recv {} {} from {}{}", NameIn(program_.names, leaf.name), Ref(leaf.buffer),
                       NameIn(program_.channels, leaf.channel), On(leaf.stream));
  }
  std::string operator()(const Copy& leaf) const {
    return fmt::format("copy {} {} bytes{}{}", NameIn(program_.names, leaf.name), leaf.bytes.count(), On(leaf.stream),
                       Accesses(leaf));
  }
  std::string operator()(const Scale& leaf) const {
    return fmt::format("scale {} {} by {}{}", NameIn(program_.names, leaf.name), Ref(leaf.buffer), Text(leaf.factor),
                       On(leaf.stream));
  }

  std::string operator()(const Record& leaf) const {
    return fmt::format("record {}{}", NameIn(program_.events, leaf.event), On(leaf.stream));
  }
  std::string operator()(const Wait& leaf) const {
    return fmt::format("wait {}{}", NameIn(program_.events, leaf.event), On(leaf.stream));
  }
  std::string operator()(const HostSync& leaf) const {
    return leaf.stream.valid() ? "sync stream " + NameIn(program_.streams, leaf.stream) : "sync device";
  }

  std::string operator()(const Begin& leaf) const {
    const bool whole_step = leaf.microbatch == Index{.loop = {}, .offset = -1};
    if (leaf.side != Side::none) {
      return fmt::format("begin {} {} chunk {}", Name(leaf.phase), Name(leaf.side), Text(leaf.microbatch));
    }
    return whole_step ? fmt::format("begin {}", Name(leaf.phase))
                      : fmt::format("begin {} microbatch {}", Name(leaf.phase), Text(leaf.microbatch));
  }
  std::string operator()(const End& leaf) const { return fmt::format("end {}", Name(leaf.phase)); }

  std::string operator()(const Repeat& leaf) const {
    const std::int64_t last = leaf.from + (leaf.count - 1) * leaf.step;
    const std::int64_t seen_step = last < leaf.from ? -1 : 1;
    return fmt::format("repeat {} {}..{} x{}{} {{", NameIn(program_.loops, leaf.loop), leaf.from, last, leaf.count,
                       leaf.step == seen_step ? "" : fmt::format(" step {}", leaf.step));
  }

  std::string Ref(const BufferRef& ref) const {
    std::string text = NameIn(program_.buffers, ref.buffer);
    std::size_t shown = ref.buffer.index < program_.buffers.size() ? Dimensions(program_.buffers[ref.buffer.index]) : 0;
    if (ref.index[0] != Index{}) {
      shown = std::max<std::size_t>(shown, 1);
    }
    if (ref.index[1] != Index{}) {
      shown = 2;
    }
    for (std::size_t i = 0; i < shown; ++i) {
      text += fmt::format("[{}]", Text(ref.index[i]));
    }
    return text;
  }

 private:
  static std::string Beside(std::span<const FlightId> flights) {
    std::string text;
    for (const FlightId flight : flights) {
      text += fmt::format("{} {}", text.empty() ? " beside flight" : "", flight.index);
    }
    return text;
  }

  std::string On(StreamId stream) const { return " on " + NameIn(program_.streams, stream); }

  /// "3", "m", "layer-1", "(layer+1)%2", "layer%2".
  std::string Text(const Index& index) const {
    std::string value = index.loop.valid() ? NameIn(program_.loops, index.loop) : fmt::format("{}", index.offset);
    if (index.loop.valid() && index.offset != 0) {
      value += fmt::format("{:+}", index.offset);
    }
    if (index.modulus == 0) {
      return value;
    }
    const bool sum = index.loop.valid() && index.offset != 0;
    return fmt::format("{}{}{}%{}", sum ? "(" : "", value, sum ? ")" : "", index.modulus);
  }
  std::string Text(Rational factor) const { return tidemark::Text(factor); }

  template <class Leaf>
  std::string Accesses(const Leaf& leaf) const {
    return List(" reads ", leaf.reads) + List(" writes ", leaf.writes);
  }

  std::string List(std::string_view word, const std::vector<BufferRef>& refs) const {
    std::string text;
    for (const BufferRef& ref : refs) {
      text += text.empty() ? word : std::string_view(", ");
      text += Ref(ref);
    }
    return text;
  }

  const Program& program_;
};

using Row = std::vector<std::string>;

struct Column {
  std::size_t width = 0;
  bool numbers = true;  ///< aligned to the right
};

/// A titled table with aligned columns and a blank line after it; nothing when it has no rows.
std::string Section(std::string_view title, const std::vector<Row>& rows) {
  if (rows.empty()) {
    return {};
  }
  std::vector<Column> columns(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      columns[i].width = std::max(columns[i].width, row[i].size());
      columns[i].numbers &= row[i].find_first_not_of("0123456789") == std::string::npos;
    }
  }
  std::string text = fmt::format("{}:\n", title);
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += columns[i].numbers ? fmt::format("  {:>{}}", row[i], columns[i].width)
                                 : fmt::format("  {:<{}}", row[i], columns[i].width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + "\n";
}

template <class Table, class ToRow>
std::vector<Row> Rows(const Table& table, ToRow to_row) {
  std::vector<Row> rows;
  std::transform(table.begin(), table.end(), std::back_inserter(rows), to_row);
  return rows;
}

std::string Text(const Holding& holding) {
  std::string text = fmt::format(", holds {} {} of {}{}{}{}", Name(holding.parts), Name(holding.cut), holding.ranks,
                                 holding.masters ? " masters" : "", holding.frozen ? " frozen" : "",
                                 holding.unpadded ? " unpadded" : "");
  text += holding.aligned == 1 ? "" : fmt::format(" aligned {}", holding.aligned);
  text += holding.multiple == 1 ? " from" : fmt::format(" multiple {} from", holding.multiple);
  for (const HeldRun& run : holding.of) {
    text += " " + Quoted(run.name);
    if (run.count != 1) {
      text += fmt::format("[{}..{}]", run.first, run.first + run.count - 1);
    } else if (run.first != 0) {
      text += fmt::format("[{}]", run.first);
    }
  }
  return text;
}

/// "view of pool", "slices of bucket at 0 and bucket at 4096".
std::string WhereViewIs(const Program& program, const Buffer& view) {
  if (view.slices.empty()) {
    return fmt::format("view of {}", NameIn(program.buffers, view.base));
  }
  std::string text;
  for (const BufferSlice& slice : view.slices) {
    text +=
        fmt::format("{} {} at {}", text.empty() ? "slices of" : " and", NameIn(program.buffers, slice.of), slice.first);
  }
  return text;
}

Row BufferRow(const Program& program, const Buffer& buffer) {
  std::string name = Quoted(buffer.name);
  for (std::size_t i = 0; i < Dimensions(buffer); ++i) {
    name += fmt::format("[{}]", buffer.extents[i]);
  }
  std::vector<std::string> row = {name, std::string(Name(buffer.category)), fmt::format("{}", buffer.elements),
                                  std::string(Name(buffer.dtype))};
  row.push_back(buffer.is_view() ? WhereViewIs(program, buffer)
                                 : fmt::format("born on {}{}{}{}", NameIn(program.streams, buffer.stream),
                                               buffer.place == Place::host ? ", host memory" : "",
                                               buffer.resident ? ", resident" : "", buffer.kept ? ", kept" : ""));
  for (const Holding& holding : buffer.holds) {
    row.back() += Text(holding);
  }
  return row;
}

std::string Header(const Program& program) {
  const auto groups = Rows(program.groups, [](const Group& group) {
    return Row{Quoted(group.name), fmt::format("{} ranks, {} per node", group.size, group.ranks_per_node)};
  });
  const auto channels = Rows(program.channels, [](const Channel& channel) {
    return Row{Quoted(channel.name), fmt::format("role {} -> role {}{}", channel.from_role, channel.to_role,
                                                 channel.crosses_nodes ? ", crosses nodes" : "")};
  });
  const auto layers = Rows(program.layers, [](const LayerRun& run) {
    return Row{Quoted(run.block), fmt::format("from {}", run.first)};
  });
  const auto streams = Rows(program.streams, [](const Stream& stream) {
    return Row{Quoted(stream.name), std::string(Name(stream.kind))};
  });
  const auto events = Rows(program.events, [](const std::string& event) { return Row{Quoted(event)}; });
  const auto buffers = Rows(program.buffers, [&](const Buffer& buffer) { return BufferRow(program, buffer); });
  return fmt::format("role {} {}, {} ranks\n\n", program.role_index, Quoted(program.role), program.ranks) +
         Section("layers", layers) + Section("groups", groups) + Section("channels", channels) +
         Section("streams", streams) + Section("events", events) + Section("buffers", buffers);
}

}  // namespace

std::string Print(const Program& program) {
  std::string text = Header(program) + "program:\n";
  std::vector<std::size_t> ends;  // of the bodies around the current node, outermost first
  const NodePrinter printer(program);
  const auto close = [&](std::size_t at) {
    for (; !ends.empty() && ends.back() <= at; ends.pop_back()) {
      text += std::string(2 * ends.size(), ' ') + "}\n";
    }
  };
  for (std::size_t at = 0; at < program.nodes.size(); ++at) {
    close(at);
    text += std::string(2 + 2 * ends.size(), ' ') + std::visit(printer, program.nodes[at]) + "\n";
    if (const auto* repeat = std::get_if<Repeat>(&program.nodes[at])) {
      ends.push_back(std::min(at + 1 + repeat->size, program.nodes.size()));
    }
  }
  close(program.nodes.size());
  return text;
}

std::string Print(const Program& program, const Node& node) { return std::visit(NodePrinter(program), node); }

std::string Print(const Program& program, const BufferRef& buffer) { return NodePrinter(program).Ref(buffer); }

}  // namespace tidemark
