// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/memory_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "traces/family.h"

namespace tidemark {
namespace {

using Side = Alignment::Side;
using Kind = MemoryCauseKind;

/// FamilyOf is asked once for each tensor of the tables, not for each event.
std::vector<std::string> Families(const Trace& trace) {
  std::vector<std::string> families;
  for (const TraceTensor& tensor : trace.tensors) {
    families.push_back(FamilyOf(tensor.name));
  }
  return families;
}

bool IsSamePhase(const Trace& one, std::size_t at, const Trace& other, std::size_t there) {
  const std::uint16_t ours = one.memory[at].span, theirs = other.memory[there].span;
  if (ours == kNoSpan || theirs == kNoSpan) {
    return ours == theirs;
  }
  const Span& span = one.spans[ours];
  const Span& same = other.spans[theirs];
  return span.phase == same.phase && span.microbatch == same.microbatch && span.side == same.side;
}

/// Both sides of a pair; nullptr where one has no such tensor.
struct Pair {
  const Life* predicted = nullptr;
  const Life* measured = nullptr;
};

class CauseFinder {
 public:
  explicit CauseFinder(const Alignment& alignment)
      : alignment_(alignment), families_{Families(*Of(Side::predicted).trace), Families(*Of(Side::measured).trace)} {}

  std::vector<MemoryCause> Find() {
    const History& ours = Of(Side::predicted);
    const History& theirs = Of(Side::measured);
    const Bytes error = ours.TotalAt(ours.peak) - theirs.TotalAt(theirs.peak);
    const bool at_ours = error >= Bytes(0);
    at_[Side::predicted] = at_ours ? ours.peak : alignment_.SameInstant(Side::measured, theirs.peak);
    at_[Side::measured] = at_ours ? alignment_.SameInstant(Side::predicted, ours.peak) : theirs.peak;
    for (std::uint32_t life = 0; life < ours.lives.size(); ++life) {
      const std::uint32_t partner = alignment_.PartnerOf(Side::predicted, life);
      if (partner == Alignment::kNone) {
        AddLone({&ours.lives[life], nullptr});
      } else {
        AddPair(life, partner);
      }
    }
    for (std::uint32_t life = 0; life < theirs.lives.size(); ++life) {
      if (alignment_.PartnerOf(Side::measured, life) == Alignment::kNone) {
        AddLone({nullptr, &theirs.lives[life]});
      }
    }
    AddOtherMoment(error);
    return Sorted();
  }

 private:
  const History& Of(Side side) const { return alignment_.history(side); }
  const TraceTensor& TensorOf(Side side, const Life& life) const { return Of(side).trace->tensors[life.tensor]; }

  /// Of the error of the peaks, at the instant at which they are compared.
  Bytes AtPeak(const Pair& pair) const {
    const auto bytes = [&](Side side, const Life* life) {
      return life != nullptr && History::IsAlive(*life, at_[side]) ? Of(side).BytesOf(*life) : Bytes(0);
    };
    return bytes(Side::predicted, pair.predicted) - bytes(Side::measured, pair.measured);
  }

  MemoryCause& Add(Kind kind, const Pair& pair) {
    const Side side = pair.predicted != nullptr ? Side::predicted : Side::measured;
    const Life& life = pair.predicted != nullptr ? *pair.predicted : *pair.measured;
    const std::string& family = families_[side][life.tensor];
    const std::string as = kind == Kind::renamed ? families_[Side::measured][pair.measured->tensor] : std::string();
    const TraceTensor& tensor = TensorOf(side, life);
    const auto [found, is_new] = causes_.try_emplace({kind, family, as, tensor.category, side});
    MemoryCause& cause = found->second;
    ++cause.lives;
    if (is_new) {
      Describe(cause, kind, pair);
      cause.tensor = family;
      cause.tensor_as = as;
      cause.category = tensor.category;
      cause.place = PlaceOf(*Of(side).trace, life.born);
    }
    return cause;
  }

  void Describe(MemoryCause& cause, Kind kind, const Pair& pair) const {
    cause.kind = kind;
    if (pair.predicted != nullptr) {
      cause.predicted_bytes = Of(Side::predicted).BytesOf(*pair.predicted);
      cause.predicted_dtype = TensorOf(Side::predicted, *pair.predicted).dtype;
    }
    if (pair.measured != nullptr) {
      cause.measured_bytes = Of(Side::measured).BytesOf(*pair.measured);
      cause.measured_dtype = TensorOf(Side::measured, *pair.measured).dtype;
    }
    if (kind == Kind::freed_later || kind == Kind::freed_earlier) {
      cause.predicted = MomentOf(Side::predicted, pair.predicted->died);
      cause.measured = MomentOf(Side::measured, pair.measured->died);
    } else if (kind == Kind::allocated_later || kind == Kind::allocated_earlier) {
      cause.predicted = MomentOf(Side::predicted, pair.predicted->born);
      cause.measured = MomentOf(Side::measured, pair.measured->born);
    }
  }

  MemoryCause::Moment MomentOf(Side side, std::size_t event) const {
    if (event == Life::kNever) {
      return {{}, {}, true};
    }
    const Trace& trace = *Of(side).trace;
    const std::ptrdiff_t before = alignment_.ChainBefore(side, event);
    return {
        PlaceOf(trace, event),
        before < 0 ? std::string() : trace.tensors[trace.memory[static_cast<std::size_t>(before)].tensor.index].name,
        false};
  }

  void AddLone(const Pair& pair) {
    const Side side = pair.predicted != nullptr ? Side::predicted : Side::measured;
    const TraceTensor& tensor = TensorOf(side, pair.predicted != nullptr ? *pair.predicted : *pair.measured);
    const Kind kind = tensor.category == Category::workspace ? Kind::workspace
                      : side == Side::predicted              ? Kind::missing
                                                             : Kind::extra;
    Add(kind, pair).at_peak += AtPeak(pair);
  }

  void AddPair(std::uint32_t ours, std::uint32_t theirs) {
    const Pair pair{&Of(Side::predicted).lives[ours], &Of(Side::measured).lives[theirs]};
    const TraceTensor& one = TensorOf(Side::predicted, *pair.predicted);
    const TraceTensor& other = TensorOf(Side::measured, *pair.measured);
    const bool alive_here = History::IsAlive(*pair.predicted, at_[Side::predicted]);
    const bool alive_there = History::IsAlive(*pair.measured, at_[Side::measured]);
    Bytes lifetime = alive_here != alive_there ? AtPeak(pair) : Bytes(0);
    const bool is_typed = alignment_.IsUntyped(Side::predicted) == alignment_.IsUntyped(Side::measured);
    const bool is_other_dtype = is_typed && one.dtype != other.dtype;
    if (is_other_dtype || one.bytes != other.bytes) {
      Add(is_other_dtype ? Kind::dtype : Kind::size, pair).at_peak += AtPeak(pair) - lifetime;
    }
    if (is_typed && one.name != other.name) {
      Add(Kind::renamed, pair);
    }
    const bool born_apart = alive_here != alive_there && BornApart(pair, alive_here);
    if (const int later = LaterBirth(ours, pair); later != 0 || born_apart) {
      const bool is_later = later != 0 ? later > 0 : alive_here;
      MemoryCause& cause = Add(is_later ? Kind::allocated_later : Kind::allocated_earlier, pair);
      cause.at_peak += born_apart ? lifetime : Bytes(0);
      lifetime = born_apart ? Bytes(0) : lifetime;
    }
    if (const int later = LaterDeath(pair); later != 0 || lifetime != Bytes(0)) {
      const bool is_later = later != 0 ? later > 0 : alive_there;
      Add(is_later ? Kind::freed_later : Kind::freed_earlier, pair).at_peak += lifetime;
    }
  }

  /// Of a tensor that is alive on one side only at the compared instant: whether the other one is not born yet.
  bool BornApart(const Pair& pair, bool alive_here) const {
    const Side other = alive_here ? Side::measured : Side::predicted;
    const Life& life = alive_here ? *pair.measured : *pair.predicted;
    return at_[other] < 0 || life.born > static_cast<std::size_t>(at_[other]);
  }

  /// Whether the measured one is born later (1), earlier (-1) or at the same instant.
  int LaterBirth(std::uint32_t ours, const Pair& pair) const {
    if (!alignment_.IsBirthMoved(Side::predicted, ours)) {
      return LaterPhase(pair.predicted->born, pair.measured->born);
    }
    return Compare(alignment_.SegmentOf(Side::predicted, pair.predicted->born),
                   alignment_.SegmentOf(Side::measured, pair.measured->born));
  }

  int LaterDeath(const Pair& pair) const {
    const std::size_t here = pair.predicted->died, there = pair.measured->died;
    if (here == Life::kNever || there == Life::kNever) {
      return here == there ? 0 : there == Life::kNever ? 1 : -1;
    }
    const int later = Compare(alignment_.SegmentOf(Side::predicted, here), alignment_.SegmentOf(Side::measured, there));
    return later != 0 ? later : LaterPhase(here, there);
  }

  /// Two events with no allocation between them may still be of different phases.
  int LaterPhase(std::size_t here, std::size_t there) const {
    const Trace& predicted = *Of(Side::predicted).trace;
    const Trace& measured = *Of(Side::measured).trace;
    const std::uint16_t ours = predicted.memory[here].span, theirs = measured.memory[there].span;
    return ours == kNoSpan || theirs == kNoSpan || IsSamePhase(predicted, here, measured, there)
               ? 0
               : Compare(ours, theirs);
  }

  static int Compare(std::uint32_t predicted, std::uint32_t measured) {
    return measured > predicted ? 1 : measured < predicted ? -1 : 0;
  }

  void AddOtherMoment(Bytes error) {
    const Side lower = error >= Bytes(0) ? Side::measured : Side::predicted;
    const History& history = Of(lower);
    const Bytes more = history.TotalAt(history.peak) - history.TotalAt(at_[lower]);
    if (more == Bytes(0)) {
      return;
    }
    MemoryCause cause;
    cause.kind = Kind::other_moment;
    cause.at_peak = lower == Side::measured ? Bytes(0) - more : more;
    cause.predicted = PeakOf(Side::predicted);
    cause.measured = PeakOf(Side::measured);
    causes_[{cause.kind, "", "", cause.category, lower}] = cause;
  }

  /// The side's own peak: right after an allocation.
  MemoryCause::Moment PeakOf(Side side) const {
    const Trace& trace = *Of(side).trace;
    const std::ptrdiff_t peak = Of(side).peak;
    if (peak < 0) {
      return {};
    }
    const auto at = static_cast<std::size_t>(peak);
    return {PlaceOf(trace, at), trace.tensors[trace.memory[at].tensor.index].name, false};
  }

  std::vector<MemoryCause> Sorted() {
    std::vector<MemoryCause> causes;
    for (auto& [key, cause] : causes_) {
      causes.push_back(std::move(cause));
    }
    std::stable_sort(causes.begin(), causes.end(), [](const MemoryCause& a, const MemoryCause& b) {
      const auto key = [](const MemoryCause& cause) {
        return std::pair(std::abs(cause.at_peak.count()),
                         std::max(cause.predicted_bytes, cause.measured_bytes).count());
      };
      return key(a) > key(b);
    });
    return causes;
  }

  using Key = std::tuple<Kind, std::string, std::string, Category, Side>;

  const Alignment& alignment_;
  std::array<std::vector<std::string>, 2> families_;
  std::array<std::ptrdiff_t, 2> at_{};  ///< the instant at which the peaks are compared
  std::map<Key, MemoryCause> causes_;
};

std::string EventText(const Trace& trace, std::size_t at) {
  const MemoryEvent& event = trace.memory[at];
  const TraceTensor& tensor = trace.tensors[event.tensor.index];
  return fmt::format("{} {}[{}][{}] of {} bytes", event.alloc ? "allocates" : "frees", tensor.name, event.index0,
                     event.index1, tensor.bytes.count());
}

/// How much an event changed the allocator's total.
Bytes BlockOf(const Trace& trace, std::size_t event) {
  const Bytes before = event == 0 ? Bytes(0) : trace.memory[event - 1].allocator_bytes;
  return trace.memory[event].allocator_bytes - before;
}

bool KnowsAllocator(const Trace& trace) {
  return std::any_of(trace.memory.begin(), trace.memory.end(),
                     [](const MemoryEvent& event) { return event.allocator_bytes > Bytes(0); });
}

}  // namespace

std::vector<MemoryCause> FindMemoryCauses(const Alignment& alignment) { return CauseFinder(alignment).Find(); }

std::vector<UnmatchedTensor> FindUnmatched(const Alignment& alignment) {
  std::vector<UnmatchedTensor> unmatched;
  for (const Side side : {Side::predicted, Side::measured}) {
    const History& history = alignment.history(side);
    std::map<std::tuple<std::string, Category, PhasePlace>, std::size_t> known;
    for (std::uint32_t life = 0; life < history.lives.size(); ++life) {
      if (alignment.PartnerOf(side, life) != Alignment::kNone) {
        continue;
      }
      const TraceTensor& tensor = history.trace->tensors[history.lives[life].tensor];
      const PhasePlace place = PlaceOf(*history.trace, history.lives[life].born);
      const auto [found, is_new] = known.try_emplace({tensor.name, tensor.category, place}, unmatched.size());
      if (is_new) {
        unmatched.push_back({side == Side::predicted, tensor.name, tensor.category, place, 0, Bytes(0)});
      }
      ++unmatched[found->second].count;
      unmatched[found->second].bytes += tensor.bytes;
    }
  }
  return unmatched;
}

std::vector<std::string> FindRounded(const Alignment& alignment) {
  const History& ours = alignment.history(Side::predicted);
  const History& theirs = alignment.history(Side::measured);
  std::vector<std::string> rounded;
  if (!KnowsAllocator(*ours.trace) || !KnowsAllocator(*theirs.trace)) {
    return rounded;
  }
  std::vector<bool> told(ours.trace->tensors.size());
  for (std::uint32_t life = 0; life < ours.lives.size(); ++life) {
    const std::uint32_t partner = alignment.PartnerOf(Side::predicted, life);
    if (partner == Alignment::kNone || told[ours.lives[life].tensor]) {
      continue;
    }
    const Life& one = ours.lives[life];
    const Life& other = theirs.lives[partner];
    if (ours.BytesOf(one) == theirs.BytesOf(other) &&
        BlockOf(*ours.trace, one.born) != BlockOf(*theirs.trace, other.born)) {
      told[one.tensor] = true;
      const std::string family = FamilyOf(ours.trace->tensors[one.tensor].name);
      if (std::find(rounded.begin(), rounded.end(), family) == rounded.end()) {
        rounded.push_back(family);
      }
    }
  }
  return rounded;
}

/// Residents may come in any order: where each has its partner among the others, the comparison begins behind them.
std::optional<FirstDifference> FindFirstDifference(const Alignment& alignment) {
  const History& ours = alignment.history(Side::predicted);
  const History& theirs = alignment.history(Side::measured);
  const bool is_typed = alignment.IsUntyped(Side::predicted) == alignment.IsUntyped(Side::measured);
  const auto is_same = [&](std::size_t i, std::size_t j) {
    const Life& one = ours.lives[ours.life_of[i]];
    const Life& other = theirs.lives[theirs.life_of[j]];
    const TraceTensor& tensor = ours.trace->tensors[one.tensor];
    const TraceTensor& there = theirs.trace->tensors[other.tensor];
    return ours.trace->memory[i].alloc == theirs.trace->memory[j].alloc &&
           alignment.PartnerOf(Side::predicted, ours.life_of[i]) == theirs.life_of[j] &&
           (!is_typed || (tensor.name == there.name && tensor.dtype == there.dtype)) && tensor.bytes == there.bytes &&
           IsSamePhase(*ours.trace, i, *theirs.trace, j);
  };
  std::size_t begin = ours.resident == theirs.resident ? ours.resident : 0;
  for (std::size_t i = 0; i < begin; ++i) {
    const std::uint32_t partner = alignment.PartnerOf(Side::predicted, ours.life_of[i]);
    if (partner == Alignment::kNone || theirs.lives[partner].born >= begin || !is_same(i, theirs.lives[partner].born)) {
      begin = 0;
    }
  }
  const std::size_t here = ours.trace->memory.size(), there = theirs.trace->memory.size();
  std::size_t at = begin;
  while (at < here && at < there && is_same(at, at)) {
    ++at;
  }
  if (at >= here && at >= there) {
    return std::nullopt;
  }
  FirstDifference first;
  if (at < here) {
    first.predicted = EventText(*ours.trace, at);
    first.predicted_place = PlaceOf(*ours.trace, at);
    first.predicted_issue = ours.trace->memory[at].issue;
  }
  if (at < there) {
    first.measured = EventText(*theirs.trace, at);
    first.measured_place = PlaceOf(*theirs.trace, at);
    first.measured_issue = theirs.trace->memory[at].issue;
  }
  return first;
}

}  // namespace tidemark
