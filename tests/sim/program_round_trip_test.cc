// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/program/flight_sets.h"
#include "sim/program/text.h"
#include "tests/sim/dice.h"

namespace tidemark::program_round_trip_test {
namespace {

/// Builds programs in which every reference leads somewhere, but which otherwise make no sense: all that the text form
/// must carry, odd names included.
class WellFormedProgram {
 public:
  explicit WellFormedProgram(Dice& dice) : dice_(dice) {}

  Program Make() {
    program_.role = NewName();
    program_.role_index = dice_.Number(0, 9);
    program_.ranks = dice_.Number(1, 4096);
    Declare();
    AddNodes(3 + dice_.Roll(20));
    return std::move(program_);
  }

 private:
  /// Never the same name twice: the number makes the difference.
  std::string NewName() {
    static constexpr std::string_view kStems[] = {
        "a",    "layer.wq", "reads", "on",    "x32", "with space", "-",     "a\"b", "back\\slash", "new\nline", "Grüße",
        "a..b", "dot.",     "host",  "gemm(", "1st", "[3]",        "a:b/c", "}",    "# no",        ""};
    return std::string(kStems[dice_.Roll(std::size(kStems))]) + (dice_.OneIn(2) ? "" : ".") + std::to_string(serial_++);
  }

  void Declare() {
    program_.streams.push_back({"host", StreamKind::host});
    for (std::uint32_t i = 0; i <= dice_.Roll(4); ++i) {
      program_.streams.push_back({NewName(), static_cast<StreamKind>(dice_.Roll(5))});
      program_.events.push_back(NewName());
      program_.loops.push_back(NewName());
      program_.names.push_back(NewName());
      program_.groups.push_back({NewName(), dice_.Number(1, 1 << 20), dice_.Number(1, 8)});
      program_.channels.push_back({NewName(), dice_.Number(0, 9), dice_.Number(0, 9), dice_.OneIn(2)});
    }
    for (std::uint32_t i = 0; i <= dice_.Roll(6); ++i) {
      program_.buffers.push_back({.name = NewName(),
                                  .category = static_cast<Category>(dice_.Roll(kProgramCategories)),
                                  .dtype = static_cast<DType>(dice_.Roll(7)),
                                  .elements = dice_.Number(0, std::int64_t{1} << 50),
                                  .extents = {dice_.Number(0, 3), dice_.Number(0, 3)},
                                  .stream = Pick<StreamId>(program_.streams),
                                  .place = dice_.OneIn(4) ? Place::host : Place::device,
                                  .resident = dice_.OneIn(2),
                                  .kept = dice_.OneIn(2)});
    }
  }

  template <class IdType, class Table>
  IdType Pick(const Table& table) {
    return {dice_.Roll(table.size())};
  }

  void AddNodes(std::uint32_t wanted) {
    for (std::uint32_t i = 0; i < wanted; ++i) {
      if (around_.size() < program_.loops.size() && dice_.OneIn(5)) {
        AddRepeat();
      } else {
        program_.nodes.push_back(Leaf());
      }
    }
  }

  void AddRepeat() {
    const LoopId loop{static_cast<std::uint32_t>(around_.size())};
    const std::size_t at = program_.nodes.size();
    program_.nodes.push_back(Repeat{.loop = loop,
                                    .count = dice_.OneIn(3) ? 1 : dice_.Number(1, 300),
                                    .from = dice_.Number(-5, 300),
                                    .step = dice_.OneIn(2) ? 1 : -1});
    around_.push_back(loop);
    AddNodes(dice_.Roll(6));
    around_.pop_back();
    std::get<Repeat>(program_.nodes[at]).size = static_cast<std::uint32_t>(program_.nodes.size() - at - 1);
  }

  Node Leaf() {
    const NameId name = Pick<NameId>(program_.names);
    const StreamId stream = Pick<StreamId>(program_.streams);
    switch (dice_.Roll(13)) {
      case 0:
        return Alloc{AnyRef()};
      case 1:
        return Free{AnyRef(), dice_.OneIn(2)};
      case 2:
        return Send{name, Pick<ChannelId>(program_.channels), stream, AnyRef()};
      case 3:
        return Recv{name, Pick<ChannelId>(program_.channels), stream, AnyRef()};
      case 4:
        return Copy{name, stream, Bytes(dice_.Number(0, 1 << 30)), Refs(), Refs()};
      case 5:
        return Scale{name, AnyFactor(), stream, AnyRef()};
      case 6:
        return Record{Pick<EventId>(program_.events), stream};
      case 7:
        return Wait{Pick<EventId>(program_.events), stream};
      case 8:
        return HostSync{dice_.OneIn(2) ? StreamId{} : stream};
      case 9:
        return AnyBegin();
      case 10:
        return End{static_cast<Phase>(dice_.Roll(kPhases))};
      case 11:
        return Collective{name,
                          static_cast<CollectiveKind>(dice_.Roll(6)),
                          static_cast<Reduction>(dice_.Roll(3)),
                          AnyFactor(),
                          Pick<GroupId>(program_.groups),
                          static_cast<DType>(dice_.Roll(7)),
                          dice_.Number(0, 1 << 30),
                          stream,
                          Refs(),
                          Refs(),
                          dice_.OneIn(2) ? FlightId{} : AnyFlight()};
      default: {
        const std::int64_t own = dice_.Roll(4);
        return Compute{name,        AnyOperator(), stream, static_cast<Work>(dice_.Roll(3)),
                       AnyFactor(), Refs(),        Refs(), own == 0,
                       own == 1,    AnyFlights()};
      }
    }
  }

  Rational AnyFactor() { return dice_.OneIn(3) ? Rational(1) : Rational(dice_.Number(-9, 9), dice_.Number(1, 64)); }

  Index AnyIndex() {
    Index index{.loop = {}, .offset = dice_.Number(-9, 9), .modulus = dice_.OneIn(3) ? dice_.Number(1, 9) : 0};
    if (!around_.empty() && dice_.OneIn(2)) {
      index.loop = around_[dice_.Roll(around_.size())];
    }
    return index;
  }

  Begin AnyBegin() {
    const auto phase = static_cast<Phase>(dice_.Roll(kPhases));
    return dice_.OneIn(2) ? Begin{phase, Index{.loop = {}, .offset = -1}}
                          : Begin{phase, AnyIndex(), static_cast<Side>(dice_.Roll(kSides))};
  }

  BufferRef AnyRef() {
    BufferRef ref{Pick<BufferId>(program_.buffers), {}};
    for (Index& index : ref.index) {
      index = dice_.OneIn(2) ? Index{} : AnyIndex();
    }
    return ref;
  }

  FlightId AnyFlight() { return {static_cast<std::uint32_t>(dice_.Roll(5))}; }

  FlightSetId AnyFlights() {
    std::vector<FlightId> flights;
    for (std::uint32_t flight = 0; flight < 5; ++flight) {
      if (dice_.OneIn(4)) {
        flights.push_back({flight});
      }
    }
    const FlightSetId id = flights_.Intern(flights);
    program_.flight_sets = flights_.sets();
    return id;
  }

  std::vector<BufferRef> Refs() {
    std::vector<BufferRef> refs(dice_.Roll(4));
    for (BufferRef& ref : refs) {
      ref = AnyRef();
    }
    return refs;
  }

  struct RandomField {
    Dice& dice;
    void operator()(std::string_view, std::int64_t& field) const { field = dice.OneIn(3) ? field : dice.Number(0, 99); }
    void operator()(std::string_view, bool& field) const { field = dice.OneIn(2); }
    void operator()(std::string_view, DType& field) const { field = static_cast<DType>(dice.Roll(7)); }
  };

  template <std::size_t kAt = 0>
  Operator AnyOperator() {
    if constexpr (kAt + 1 < std::variant_size_v<Operator>) {
      if (!dice_.OneIn(std::variant_size_v<Operator> - kAt)) {
        return AnyOperator<kAt + 1>();
      }
    }
    std::variant_alternative_t<kAt, Operator> op;
    ForEachField(op, RandomField{dice_});
    return op;
  }

  Dice& dice_;
  Program program_;
  std::vector<LoopId> around_;
  FlightSets flights_;
  int serial_ = 0;
};

/// Everything about a node as numbers and names, without the printer: operation and loop ids by name.
class Facts {
 public:
  static std::vector<std::string> Of(const Program& program, const Node& node) {
    Facts facts{program};
    facts.Add(node.index());
    std::visit([&](const auto& leaf) { facts.AddLeaf(leaf); }, node);
    return facts.list_;
  }

 private:
  explicit Facts(const Program& program) : program_(program) {}

  template <class Number>
  void Add(Number value) {
    list_.push_back(std::to_string(value));
  }
  void Add(const Index& index) {
    list_.push_back(index.loop.valid() ? program_.loops.at(index.loop.index) : "no loop");
    Add(index.offset);
    Add(index.modulus);
  }
  void Add(const BufferRef& ref) {
    Add(ref.buffer.index);
    Add(ref.index[0]);
    Add(ref.index[1]);
  }

  template <class Leaf>
  void AddLeaf(const Leaf& leaf) {
    if constexpr (requires { leaf.name; }) {
      list_.push_back(program_.names.at(leaf.name.index));
    }
    if constexpr (requires { leaf.stream; }) {
      Add(leaf.stream.index);
    }
    if constexpr (requires { leaf.event; }) {
      Add(leaf.event.index);
    }
    if constexpr (requires { leaf.channel; }) {
      Add(leaf.channel.index);
    }
    if constexpr (requires { leaf.buffer; }) {
      Add(leaf.buffer);
    }
    if constexpr (requires { leaf.bytes; }) {
      Add(leaf.bytes.count());
    }
    if constexpr (requires { leaf.factor; }) {
      Add(leaf.factor.numerator());
      Add(leaf.factor.denominator());
    }
    if constexpr (requires { leaf.phase; }) {
      Add(static_cast<int>(leaf.phase));
    }
    if constexpr (requires { leaf.microbatch; }) {
      Add(leaf.microbatch);
    }
    if constexpr (requires { leaf.reads; }) {
      AddAccesses(leaf);
    }
    if constexpr (requires { leaf.payload_elements; }) {
      AddCollective(leaf);
    }
    if constexpr (requires { leaf.op; }) {
      AddOperator(leaf);
    }
    if constexpr (requires { leaf.count; }) {
      list_.push_back(program_.loops.at(leaf.loop.index));
      Add(leaf.count);
      Add(leaf.from);
      Add(leaf.step);
      Add(leaf.size);
    }
  }

  template <class Leaf>
  void AddAccesses(const Leaf& leaf) {
    for (const std::vector<BufferRef>* refs : {&leaf.reads, &leaf.writes}) {
      Add(refs->size());
      for (const BufferRef& ref : *refs) {
        Add(ref);
      }
    }
  }

  void AddCollective(const Collective& leaf) {
    Add(static_cast<int>(leaf.kind));
    Add(static_cast<int>(leaf.reduction));
    Add(leaf.scale.numerator());
    Add(leaf.scale.denominator());
    Add(leaf.group.index);
    Add(static_cast<int>(leaf.dtype));
    Add(leaf.payload_elements);
    Add(leaf.flight.index);
  }

  void AddOperator(Compute leaf) {
    Add(leaf.op.index());
    Add(static_cast<int>(leaf.work));
    const std::span<const FlightId> flights = program_.FlightsBeside(leaf);
    Add(flights.size());
    for (const FlightId flight : flights) {
      Add(flight.index);
    }
    Add(leaf.own_part ? 1 : 0);
    Add(leaf.own_heads ? 1 : 0);
    const auto add = [this](std::string_view, auto field) { Add(static_cast<std::int64_t>(field)); };
    std::visit([&](auto& op) { ForEachField(op, add); }, leaf.op);
  }

  const Program& program_;
  std::vector<std::string> list_;
};

TEST(ProgramRoundTrip, ParsingWhatWasPrintedGivesTheSameProgram) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    const Program program = WellFormedProgram(dice).Make();
    const std::string text = Print(program);
    const Result<Program> again = ParseProgram(text);
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.error().Text() << "\n" << text;
    ASSERT_EQ(Print(*again), text) << "seed " << seed;
    ASSERT_EQ(again->nodes.size(), program.nodes.size()) << "seed " << seed;
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      ASSERT_EQ(Facts::Of(*again, again->nodes[i]), Facts::Of(program, program.nodes[i])) << "seed " << seed << "\n"
                                                                                          << text;
    }
  }
}

TEST(ProgramRoundTrip, DeclarationsSurviveWhole) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Dice dice(seed);
    const Program program = WellFormedProgram(dice).Make();
    const Result<Program> again = ParseProgram(Print(program));
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->buffers.size(), program.buffers.size());
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer& left = program.buffers[i];
      const Buffer& right = again->buffers[i];
      EXPECT_EQ(std::tie(left.name, left.category, left.dtype, left.elements, left.extents, left.stream, left.place,
                         left.resident, left.kept),
                std::tie(right.name, right.category, right.dtype, right.elements, right.extents, right.stream,
                         right.place, right.resident, right.kept));
    }
    EXPECT_EQ(again->events, program.events);
    EXPECT_EQ(again->role, program.role);
    EXPECT_EQ(again->channels.back().name, program.channels.back().name);
    EXPECT_EQ(again->groups.back().size, program.groups.back().size);
  }
}

TEST(ProgramRoundTrip, TextCutOffAnywhereIsReadOrRefusedButNeverCrashes) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Dice dice(seed);
    const std::string text = Print(WellFormedProgram(dice).Make());
    for (std::size_t length = 0; length < text.size(); ++length) {
      const Result<Program> program = ParseProgram(std::string_view(text).substr(0, length));
      if (program) {
        EXPECT_TRUE(ParseProgram(Print(*program)).ok());
      } else {
        EXPECT_FALSE(program.error().message.empty());
      }
    }
  }
}

TEST(ProgramRoundTrip, TextWithAByteChangedIsReadOrRefusedButNeverCrashes) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    std::string text = Print(WellFormedProgram(dice).Make());
    text[dice.Roll(text.size())] = static_cast<char>(dice.Roll(256));
    if (const Result<Program> program = ParseProgram(text)) {
      EXPECT_TRUE(ParseProgram(Print(*program)).ok()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tidemark::program_round_trip_test
