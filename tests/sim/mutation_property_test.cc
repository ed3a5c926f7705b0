// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/program/walk.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// Correct programs are broken in one place, and what they then compute is found out by running them: symbols for
// numbers, streams that proceed in any order that the waits allow. Whatever changes a value must be a finding.

namespace tidemark {
namespace {

/// A flat program whose nodes keep their identity when they are moved.
struct Flat {
  Program program;
  std::vector<std::uint64_t> ids;
};

Flat Flatten(const Program& program) {
  Flat flat{Unroll(program), {}};
  for (std::size_t i = 0; i < flat.program.nodes.size(); ++i) {
    flat.ids.push_back(i + 1);
  }
  return flat;
}

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U + b + 0x7F4A7C15U;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return x ^ (x >> 32);
}

/// Runs a flat program on symbols. What each node reads is written down by the node's identity. Memory that is
/// allocated is new memory: that it may have been somebody's before is left out.
class SymbolMachine {
 public:
  using Log = std::map<std::uint64_t, std::uint64_t>;

  SymbolMachine(const Flat& flat, Dice& dice, bool lazy) : flat_(flat), dice_(dice), lazy_(lazy) {
    const Program& program = flat.program;
    for (const Buffer& buffer : program.buffers) {
      first_.push_back(cell_of_.size());
      for (std::int64_t i = 0; i < buffer.count(); ++i) {
        cell_of_.push_back(cells_.size());
        cells_.push_back(Mix(1, cells_.size()));
      }
    }
    queues_.resize(program.streams.size());
    recorded_.resize(program.events.size());
  }

  Log Run() {
    for (std::size_t at = 0; at < flat_.program.nodes.size(); ++at) {
      Issue(at);
      while (!lazy_ && dice_.OneIn(2)) {
        Proceed();
      }
    }
    Drain(std::nullopt);
    return std::move(log_);
  }

 private:
  /// A node that a stream has been given, or a wait for the `done`-th node that another one was given.
  struct Entry {
    std::size_t node = 0;
    std::vector<std::size_t> cells;  ///< by access
    std::optional<std::pair<std::uint32_t, std::size_t>> after;
  };

  void Issue(std::size_t at) {
    const Node& node = flat_.program.nodes[at];
    if (const auto* record = std::get_if<Record>(&node)) {
      recorded_[record->event.index] = {{record->stream.index, given_[record->stream.index]}};
    } else if (const auto* wait = std::get_if<Wait>(&node)) {
      if (recorded_[wait->event.index]) {
        Give(wait->stream.index, {at, {}, recorded_[wait->event.index]});
      }
    } else if (const auto* sync = std::get_if<HostSync>(&node)) {
      Drain(sync->stream.valid() ? std::optional(sync->stream.index) : std::nullopt);
    } else if (const auto* born = std::get_if<Alloc>(&node)) {
      cell_of_[SlotOf(born->buffer)] = cells_.size();
      cells_.push_back(Mix(3, flat_.ids[at]));
    } else if (const std::optional<std::uint32_t> stream = StreamOf(node)) {
      Entry entry{at, {}, std::nullopt};
      ForEachAccess(node, [&](const BufferRef& ref, Access) { entry.cells.push_back(cell_of_[SlotOf(ref)]); });
      Give(*stream, std::move(entry));
    }
  }

  void Give(std::uint32_t stream, Entry entry) {
    queues_[stream].push_back(std::move(entry));
    ++given_[stream];
  }

  std::optional<std::uint32_t> StreamOf(const Node& node) const {
    if (const auto* dead = std::get_if<Free>(&node)) {
      // The allocator itself waits before it hands out memory whose users were recorded.
      return dead->recorded ? std::nullopt
                            : std::optional(flat_.program.buffers[dead->buffer.buffer.index].stream.index);
    }
    return std::visit(
        [](const auto& leaf) {
          if constexpr (requires { leaf.stream; }) {
            return std::optional(leaf.stream.index);
          } else {
            return std::optional<std::uint32_t>();
          }
        },
        node);
  }

  bool IsReady(std::uint32_t stream) const {
    if (queues_[stream].empty()) {
      return false;
    }
    const auto& after = queues_[stream].front().after;
    const auto done = after ? done_.find(after->first) : done_.end();
    return !after || after->second == 0 || (done != done_.end() && done->second >= after->second);
  }

  /// One stream that can does its next node; false if none can.
  bool Proceed() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t stream = 0; stream < queues_.size(); ++stream) {
      if (IsReady(stream)) {
        ready.push_back(stream);
      }
    }
    if (ready.empty()) {
      return false;
    }
    const std::uint32_t stream = ready[dice_.Roll(static_cast<std::uint32_t>(ready.size()))];
    const Entry entry = queues_[stream].front();
    queues_[stream].pop_front();
    ++done_[stream];
    if (!entry.after) {
      Execute(entry);
    }
    return true;
  }

  void Drain(std::optional<std::uint32_t> stream) {
    while (stream ? !queues_[*stream].empty() : true) {
      if (!Proceed()) {
        return;
      }
    }
  }

  void Execute(const Entry& entry) {
    const std::uint64_t id = flat_.ids[entry.node];
    const Node& node = flat_.program.nodes[entry.node];
    const bool in_place = std::holds_alternative<Scale>(node);
    std::uint64_t read = Mix(2, id);
    bool reads = false;
    std::size_t number = 0;
    ForEachAccess(node, [&](const BufferRef&, Access access) {
      const std::uint64_t value = cells_[entry.cells[number++]];
      if (access == Access::read || in_place) {
        read = Mix(read, value);
        reads = true;
      }
    });
    if (reads) {
      log_[id] = read;
    }
    number = 0;
    ForEachAccess(node, [&](const BufferRef&, Access access) {
      std::uint64_t& cell = cells_[entry.cells[number++]];
      if (access == Access::free) {
        cell = Mix(4, id);  // nothing that anybody may see
      } else if (access == Access::write) {
        cell = Mix(read, number);
      }
    });
  }

  std::size_t SlotOf(const BufferRef& ref) const {
    const Buffer& buffer = flat_.program.buffers[ref.buffer.index];
    return buffer.is_view()
               ? first_[buffer.base.index]
               : first_[ref.buffer.index] +
                     static_cast<std::size_t>(ref.index[0].offset * buffer.extents[1] + ref.index[1].offset);
  }

  const Flat& flat_;
  Dice& dice_;
  bool lazy_;
  std::vector<std::size_t> first_;    ///< slot of each family
  std::vector<std::size_t> cell_of_;  ///< by slot: its present memory
  std::vector<std::uint64_t> cells_;
  std::vector<std::deque<Entry>> queues_;
  std::map<std::uint32_t, std::size_t> given_, done_;
  std::vector<std::optional<std::pair<std::uint32_t, std::size_t>>> recorded_;
  Log log_;
};

/// Whether some order of streams lets some node read what the right program's never does.
bool Changes(const Flat& flat, const SymbolMachine::Log& right, Dice& dice) {
  for (int i = 0; i < 4; ++i) {
    for (const auto& [id, read] : SymbolMachine(flat, dice, i < 2).Run()) {
      const auto found = right.find(id);
      if (found == right.end() || found->second != read) {
        return true;
      }
    }
  }
  return false;
}

void Erase(Flat& flat, std::size_t at) {
  flat.program.nodes.erase(flat.program.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  flat.ids.erase(flat.ids.begin() + static_cast<std::ptrdiff_t>(at));
}

void Swap(Flat& flat, std::size_t a, std::size_t b) {
  std::swap(flat.program.nodes[a], flat.program.nodes[b]);
  std::swap(flat.ids[a], flat.ids[b]);
}

/// The nodes for which `is` holds, one of them; nothing where there is none.
template <class Is>
std::optional<std::size_t> Pick(const Flat& flat, Dice& dice, Is is) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < flat.program.nodes.size(); ++i) {
    if (is(flat.program.nodes[i])) {
      found.push_back(i);
    }
  }
  return found.empty() ? std::nullopt : std::optional(found[dice.Roll(static_cast<std::uint32_t>(found.size()))]);
}

bool DropWait(Flat& flat, Dice& dice) {
  const auto at = Pick(flat, dice, [](const Node& node) {
    return std::holds_alternative<Wait>(node) || std::holds_alternative<HostSync>(node);
  });
  if (at) {
    Erase(flat, *at);
  }
  return at.has_value();
}

bool FreeEarly(Flat& flat, Dice& dice) {
  const auto at = Pick(flat, dice, [](const Node& node) { return std::holds_alternative<Free>(node); });
  if (!at) {
    return false;
  }
  const std::size_t by = std::min<std::size_t>(*at, 1 + dice.Roll(30));
  for (std::size_t i = *at; i > *at - by; --i) {
    Swap(flat, i, i - 1);
  }
  return true;
}

/// Makes one buffer another name for the memory of a second one that is at least as large.
bool Alias(Flat& flat, Dice& dice) {
  std::vector<Buffer>& buffers = flat.program.buffers;
  const std::uint32_t alias = dice.Roll(static_cast<std::uint32_t>(buffers.size()));
  const std::uint32_t base = dice.Roll(static_cast<std::uint32_t>(buffers.size()));
  const Buffer& of = buffers[base];
  Buffer& buffer = buffers[alias];
  const bool is_base = std::any_of(buffers.begin(), buffers.end(),
                                   [&](const Buffer& view) { return view.is_view() && view.base.index == alias; });
  if (alias == base || is_base || buffer.is_view() || of.is_view() || buffer.count() != 1 || of.count() != 1 ||
      buffer.resident || buffer.kept || buffer.bytes() > of.bytes()) {
    return false;
  }
  for (std::size_t i = flat.program.nodes.size(); i-- > 0;) {
    const auto* born = std::get_if<Alloc>(&flat.program.nodes[i]);
    const auto* dead = std::get_if<Free>(&flat.program.nodes[i]);
    if ((born != nullptr && born->buffer.buffer.index == alias) ||
        (dead != nullptr && dead->buffer.buffer.index == alias)) {
      Erase(flat, i);
    }
  }
  buffer.base = BufferId{base};
  buffer.stream = of.stream;
  return true;
}

/// Two different operations that write to one pool change places.
bool SwapWrites(Flat& flat, Dice& dice) {
  const auto writes_view = [&](const Node& node) {
    bool found = false;
    ForEachAccess(node, [&](const BufferRef& ref, Access access) {
      found |= access == Access::write && flat.program.buffers[ref.buffer.index].is_view();
    });
    return found;
  };
  const auto a = Pick(flat, dice, writes_view), b = Pick(flat, dice, writes_view);
  if (!a || !b || Print(flat.program, flat.program.nodes[*a]) == Print(flat.program, flat.program.nodes[*b])) {
    return false;
  }
  Swap(flat, *a, *b);
  return true;
}

Job SmallJob(const char* strategy) {
  Job job = OracleJob(strategy, 2);
  if (auto* decoder = std::get_if<Decoder>(&job.network.shape)) {
    decoder->layers = 1;
  } else {
    auto& towers = std::get<DualEncoder>(job.network.shape);
    towers.first.layers = towers.second.layers = 1;
  }
  return job;
}

/// The same on two tensor-parallel ranks.
Job Gathering(const char* strategy, Buffers::TpGather gather) {
  Job job = SmallJob(strategy);
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.buffers.tp_gather = gather;
  return job;
}

/// Of every family of strategies, at least one.
std::vector<Job> Jobs() {
  using TpGather = Buffers::TpGather;
  std::vector<Job> jobs = {Gathering("nanotron", TpGather::pooled), Gathering("nanotron", TpGather::async),
                           Gathering("megatron", TpGather::pooled), Gathering("megatron-dist-opt", TpGather::pooled)};
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "ddp-last", "deepspeed-zero2", "fsdp1",
                               "colossalai-zero2", "alpa", "alpa-style1", "jax-scan", "jax-multisteps", "gradcache"}) {
    jobs.push_back(SmallJob(strategy));
  }
  return jobs;
}

class Mutation : public testing::Test {
 protected:
  /// Breaks one place of a job's program, again and again, until `enough` of the breaks changed a value.
  template <class Mutate>
  void Break(const Job& job, int enough, Mutate mutate) {
    constexpr int kMostRounds = 1500;
    const Flat right = Flatten(Sound(job).roles.front());
    Dice dice(11);
    const SymbolMachine::Log log = SymbolMachine(right, dice, true).Run();
    EXPECT_FALSE(Changes(right, log, dice)) << job.strategy << " is not the same in every order";
    int changed = 0;
    for (int round = 0; round < kMostRounds && changed < enough; ++round) {
      Flat flat = right;
      if (!mutate(flat, dice) || !Changes(flat, log, dice)) {
        continue;
      }
      ++changed;
      EXPECT_FALSE(Verify({{flat.program}}).empty()) << job.strategy << ", round " << round;
    }
    EXPECT_EQ(changed, enough) << job.strategy << ": too few mutations changed a value";
  }

  template <class Mutate>
  void BreakEach(int enough, Mutate mutate) {
    for (const Job& job : Jobs()) {
      Break(job, enough, mutate);
    }
  }
};

TEST_F(Mutation, AWaitThatIsMissedIsFound) { BreakEach(15, DropWait); }

TEST_F(Mutation, AFreeThatComesTooEarlyIsFound) { BreakEach(40, FreeEarly); }

TEST_F(Mutation, TwoLiveBuffersInOneMemoryAreFound) { BreakEach(15, Alias); }

TEST_F(Mutation, WritesToOnePoolThatChangePlacesAreFound) {
  for (const char* strategy : {"nanotron", "megatron", "megatron-dist-opt"}) {
    Break(Gathering(strategy, Buffers::TpGather::pooled), 30, SwapWrites);
  }
}

}  // namespace
}  // namespace tidemark
