// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/program/walk.h"
#include "tests/sim/dice.h"

namespace tidemark::program_verify_property_test {
namespace {

constexpr std::uint32_t kStreams = 4;  // the host and three more
constexpr std::uint32_t kBuffers = 5;
constexpr std::size_t kMostLeaves = 1024;

/// Builds random programs that obey every rule: an access waits for all streams but its own that may have touched its
/// buffer, by an event or through the host.
class CorrectProgram {
 public:
  explicit CorrectProgram(Dice& dice) : dice_(dice), touched_(kBuffers), alive_(kBuffers) {
    program_.role = "random";
    program_.names = {"work"};
    program_.loops = {"i"};
    for (std::uint32_t i = 0; i < kStreams; ++i) {
      program_.streams.push_back({"s" + std::to_string(i), i == 0 ? StreamKind::host : StreamKind::compute});
    }
    for (std::uint32_t i = 0; i < kBuffers; ++i) {
      const bool resident = dice_.OneIn(4);
      program_.buffers.push_back({.name = "b" + std::to_string(i),
                                  .dtype = DType::u8,
                                  .elements = 8,
                                  .extents = {3, 1},
                                  .stream = {dice_.Roll(kStreams)},
                                  .resident = resident,
                                  .kept = resident});
      alive_[i] = resident;
    }
  }

  Program Make() {
    AddSteps(4 + dice_.Roll(10));
    const std::size_t at = program_.nodes.size();
    program_.nodes.push_back(Repeat{.loop = LoopId{0}, .count = dice_.Number(1, 4), .from = 2, .step = -1});
    const std::vector<bool> alive = alive_;
    // A loop comes back to its start with whatever its end left behind: all streams may have touched all.
    TouchAll();
    AddSteps(2 + dice_.Roll(8));
    for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) {
      SetAlive(buffer, alive[buffer]);
    }
    std::get<Repeat>(program_.nodes[at]).size = static_cast<std::uint32_t>(program_.nodes.size() - at - 1);
    TouchAll();
    AddSteps(dice_.Roll(6));
    for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) {
      SetAlive(buffer, program_.buffers[buffer].kept);
    }
    return std::move(program_);
  }

 private:
  void TouchAll() { touched_.assign(kBuffers, {0, 1, 2, 3}); }

  void AddSteps(std::uint32_t wanted) {
    for (std::uint32_t i = 0; i < wanted; ++i) {
      const std::uint32_t buffer = dice_.Roll(kBuffers);
      if (dice_.OneIn(5)) {
        SetAlive(buffer, !alive_[buffer]);
      } else {
        Use(buffer);
      }
    }
  }

  /// All three buffers of a family live and die together.
  void SetAlive(std::uint32_t buffer, bool alive) {
    if (alive_[buffer] == alive) {
      return;
    }
    const std::uint32_t birth = program_.buffers[buffer].stream.index;
    if (alive) {
      // Whatever the stream of birth knows may have used the memory: that can be anyone.
      touched_[buffer] = {0, 1, 2, 3};
    } else {
      Order(birth, touched_[buffer]);
    }
    for (std::int64_t i = 0; i < 3; ++i) {
      const BufferRef ref{BufferId{buffer}, {Index{.loop = {}, .offset = i}, Index{}}};
      program_.nodes.push_back(alive ? Node(Alloc{ref}) : Node(Free{ref}));
      if (alive) {
        Compute first_write;
        first_write.name = NameId{0};
        first_write.stream = StreamId{birth};
        first_write.writes = {ref};
        program_.nodes.push_back(first_write);
      }
    }
    alive_[buffer] = alive;
  }

  /// A leaf that reads or writes `buffer`, and perhaps another.
  void Use(std::uint32_t buffer) {
    Compute leaf;
    leaf.name = NameId{0};
    leaf.stream = StreamId{dice_.Roll(kStreams)};
    for (const std::uint32_t used : {buffer, dice_.Roll(kBuffers)}) {
      if (alive_[used]) {
        Order(leaf.stream.index, touched_[used]);
        const Index index{.loop = {}, .offset = dice_.Number(0, 2)};
        (dice_.OneIn(2) ? leaf.reads : leaf.writes).push_back({BufferId{used}, {index, Index{}}});
        touched_[used].insert(leaf.stream.index);
      }
    }
    program_.nodes.push_back(leaf);
  }

  /// `stream` waits for each of `others`.
  void Order(std::uint32_t stream, const std::set<std::uint32_t>& others) {
    for (const std::uint32_t other : others) {
      if (other == stream || other == 0) {
        continue;
      }
      if (dice_.OneIn(6)) {
        program_.nodes.push_back(HostSync{StreamId{other}});
      } else {
        const EventId event{static_cast<std::uint32_t>(program_.events.size())};
        program_.events.push_back("e" + std::to_string(event.index));
        program_.nodes.push_back(Record{event, StreamId{other}});
        program_.nodes.push_back(Wait{event, StreamId{stream}});
      }
    }
  }

  Dice& dice_;
  Program program_;
  std::vector<std::set<std::uint32_t>> touched_;
  std::vector<bool> alive_;
};

/// Breaks a program in one random place, or not: drops a synchronisation or a free, moves one forward, lets two indices
/// meet, moves work to another stream.
void Mutate(Program& program, Dice& dice) {
  const std::size_t at = dice.Roll(program.nodes.size());
  Node& node = program.nodes[at];
  const bool is_order = std::holds_alternative<Record>(node) || std::holds_alternative<Wait>(node) ||
                        std::holds_alternative<HostSync>(node);
  if (is_order || std::holds_alternative<Free>(node)) {
    if (dice.OneIn(2) && at > 0 && !std::holds_alternative<Repeat>(program.nodes[at - 1])) {
      std::swap(node, program.nodes[at - 1]);
    } else {
      program.events.push_back("nobody waits");  // a node that does nothing keeps the loop's size as it is
      node = Record{EventId{static_cast<std::uint32_t>(program.events.size() - 1)}, StreamId{1}};
    }
  } else if (auto* const born = std::get_if<Alloc>(&node)) {
    born->buffer.index[0].modulus = dice.Number(1, 3);
  } else if (auto* const work = std::get_if<Compute>(&node); work != nullptr && dice.OneIn(3)) {
    work->writes.clear();
  } else if (work != nullptr) {
    work->stream = StreamId{dice.Roll(kStreams)};
  }
}

/// The same questions as Verify's, answered by the definition: an explicit graph of "must finish before", its
/// transitive closure, and a look at every pair of accesses.
class PlainJudge {
 public:
  explicit PlainJudge(const Program& program) : program_(Unroll(program)) {
    before_.resize(program_.nodes.size());
    for (at_ = 0; at_ < program_.nodes.size(); ++at_) {
      Visit(program_.nodes[at_]);
    }
    for (const auto& [place, life] : lives_) {
      if (life.has_value() != program_.buffers[place.first].kept) {
        rules_.insert(life.has_value() ? "never_freed" : "not_kept");
      }
    }
  }

  const std::set<std::string>& rules() const { return rules_; }

 private:
  using Past = std::bitset<kMostLeaves>;  ///< leaves that have finished
  struct Use {
    std::size_t leaf;
    bool writes;
  };
  struct Life {
    Past born_after;  ///< what may have used the memory
    std::vector<Use> uses;
    bool blank = true;
  };

  void Visit(const Node& node) {
    if (const auto* record = std::get_if<Record>(&node)) {
      events_[record->event.index] = streams_[record->stream.index] | streams_[0];
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      if (!events_.contains(wait->event.index)) {
        rules_.insert("wait_without_record");
      }
      streams_[wait->stream.index] |= events_[wait->event.index];
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      streams_[0] |= streams_[sync->stream.index];
    } else if (const auto* work = std::get_if<Compute>(&node)) {
      Past& stream = streams_[work->stream.index];
      before_[at_] = stream | streams_[0];
      stream = before_[at_];
      stream.set(at_);
    }
    ForEachAccess(node, [&](const BufferRef& ref, Access access) { Touch(ref, access); });
  }

  void Touch(const BufferRef& ref, Access access) {
    const auto place = std::pair(ref.buffer.index, ref.index[0].offset);
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    auto& life =
        lives_.try_emplace(place, buffer.resident ? std::optional(Life{{}, {}, false}) : std::nullopt).first->second;
    const Past& birth = streams_[buffer.stream.index];
    if (access == Access::alloc) {
      if (life) {
        rules_.insert("allocated_twice");
      }
      life = Life{birth, {}, true};
    } else if (!life) {
      rules_.insert("used_before_alloc");
    } else if (access == Access::free) {
      CheckUses(*life, birth | streams_[0], true);
      life.reset();
    } else {
      const bool writes = access == Access::write;
      CheckUses(*life, before_[at_], writes);
      if (writes && (life->born_after & ~before_[at_] & ~Past().set(at_)).any()) {
        rules_.insert("unordered_access");
      }
      if (!writes && life->blank) {
        rules_.insert("read_before_write");
      }
      life->blank = life->blank && !writes;
      life->uses.push_back({at_, writes});
    }
  }

  void CheckUses(const Life& life, const Past& past, bool writes) {
    for (const Use& use : life.uses) {
      if ((use.writes || writes) && use.leaf != at_ && !past.test(use.leaf)) {
        rules_.insert("unordered_access");
      }
    }
  }

  Program program_;
  std::vector<Past> before_;
  std::map<std::uint32_t, Past> streams_, events_;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::optional<Life>> lives_;
  std::set<std::string> rules_;
  std::size_t at_ = 0;
};

std::set<std::string> RulesBrokenBy(const Program& program) {
  std::set<std::string> rules;
  for (const Finding& finding : Verify({{program}}, 1000)) {
    rules.emplace(Name(finding.rule));
  }
  return rules;
}

TEST(VerifyProperty, ProgramsThatWaitForEverythingTheyTouchHaveNoFindings) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Dice dice(seed);
    const Program program = CorrectProgram(dice).Make();
    const std::vector<Finding> findings = Verify({{program}});
    ASSERT_TRUE(findings.empty()) << "seed " << seed << ": " << findings.front().message << "\n" << Print(program);
  }
}

TEST(VerifyProperty, AMutationIsFoundExactlyWhenItBreaksARule) {
  std::map<std::string, int> broken;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Dice dice(seed);
    Program program = CorrectProgram(dice).Make();
    Mutate(program, dice);
    const std::set<std::string> expected = PlainJudge(program).rules();
    std::set<std::string> found = RulesBrokenBy(program);
    ASSERT_EQ(found, expected) << "seed " << seed << "\n" << Print(program);
    for (const std::string& rule : expected) {
      ++broken[rule];
    }
    broken["nothing"] += expected.empty() ? 1 : 0;
  }
  for (const char* const rule : {"nothing", "used_before_alloc", "allocated_twice", "read_before_write",
                                 "unordered_access", "wait_without_record", "never_freed"}) {
    EXPECT_GE(broken[rule], 200) << rule;
    RecordProperty(rule, broken[rule]);
  }
}

}  // namespace
}  // namespace tidemark::program_verify_property_test
