// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/align.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>

namespace tidemark {

/// Numbers for names and places, the same on both sides.
class PlaceNumbers {
 public:
  explicit PlaceNumbers(const std::array<const History*, 2>& histories) {
    for (const std::size_t side : {0U, 1U}) {
      for (const TraceTensor& tensor : histories[side]->trace->tensors) {
        const auto known = names_.emplace(tensor.name, static_cast<std::int64_t>(names_.size())).first;
        tensors_[side].push_back(known->second);
      }
      NumberPlaces(side, *histories[side]);
    }
  }

  std::int64_t NameOf(std::size_t side, const Life& life) const { return tensors_[side][life.tensor]; }
  std::int64_t PlaceOfLife(std::size_t side, std::size_t life) const { return place_of_[side][life]; }
  std::int64_t StepOfLife(std::size_t side, std::size_t life) const { return step_of_[side][life]; }
  /// -1: it does not end, or in a place where none begins.
  std::int64_t PlaceOfDeath(const History& history, const Life& life) const {
    if (life.died == Life::kNever) {
      return -1;
    }
    PhasePlace where = PlaceOf(*history.trace, life.died);
    where.step = StepOf(*history.trace, life.died);
    const auto found = places_.find(where);
    return found == places_.end() ? -1 : found->second;
  }

 private:
  /// Neighbours mostly share a phase: a place is looked up when it changes.
  void NumberPlaces(std::size_t side, const History& history) {
    std::int64_t place = -1, step = -1;
    std::uint16_t span = kNoSpan;
    for (const Life& life : history.lives) {
      const std::uint16_t now = history.trace->memory[life.born].span;
      if (const std::int64_t at = StepOf(*history.trace, life.born); place < 0 || now != span || at != step) {
        span = now;
        step = at;
        PhasePlace where = PlaceOf(*history.trace, life.born);
        where.step = at;
        place = places_.emplace(where, static_cast<std::int64_t>(places_.size())).first->second;
      }
      place_of_[side].push_back(place);
      step_of_[side].push_back(step);
    }
  }

  std::unordered_map<std::string, std::int64_t> names_;
  std::map<PhasePlace, std::int64_t> places_;
  std::array<std::vector<std::int64_t>, 2> tensors_, place_of_, step_of_;
};

namespace {

using Key = std::array<std::int64_t, 4>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::int64_t part : key) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 31;
    }
    return static_cast<std::size_t>(hash);
  }
};

/// Pairs lives that have no partner yet: the n-th of a key with the n-th of the same key.
template <class KeyOf>
void PairBy(const std::array<const History*, 2>& histories, std::array<std::vector<std::uint32_t>, 2>& partner,
            KeyOf key_of) {
  struct Queue {
    std::uint32_t first = Alignment::kNone, last = Alignment::kNone;
  };
  std::unordered_map<Key, Queue, KeyHash> waiting;
  std::vector<std::uint32_t> next(histories[1]->lives.size(), Alignment::kNone);
  for (std::uint32_t life = 0; life < histories[1]->lives.size(); ++life) {
    if (partner[1][life] == Alignment::kNone) {
      Queue& queue = waiting[key_of(1, life)];
      (queue.first == Alignment::kNone ? queue.first : next[queue.last]) = life;
      queue.last = life;
    }
  }
  for (std::uint32_t life = 0; life < histories[0]->lives.size() && !waiting.empty(); ++life) {
    if (partner[0][life] != Alignment::kNone) {
      continue;
    }
    const auto found = waiting.find(key_of(0, life));
    if (found == waiting.end() || found->second.first == Alignment::kNone) {
      continue;
    }
    const std::uint32_t other = found->second.first;
    found->second.first = next[other];
    partner[0][life] = other;
    partner[1][other] = life;
  }
}

/// Lives by place, name and member. A transient has the same ones in every layer: there its occurrence counts.
class Sames {
 public:
  template <class KeyOf>
  Sames(const std::array<const History*, 2>& histories, KeyOf key_of) {
    std::unordered_map<Key, std::int64_t, KeyHash> known;
    for (const std::size_t side : {0U, 1U}) {
      for (std::uint32_t life = 0; life < histories[side]->lives.size(); ++life) {
        const auto [found, is_new] = known.try_emplace(key_of(side, life), static_cast<std::int64_t>(known.size()));
        if (is_new) {
          counts_.push_back({0, 0});
        }
        numbers_[side].push_back(found->second);
        ++counts_[static_cast<std::size_t>(found->second)][side];
      }
    }
  }

  std::int64_t NumberOf(std::size_t side, std::uint32_t life) const { return numbers_[side][life]; }
  /// A key that the other side has only where it has as many of them: no occurrence can be missing in between.
  Key IfAsOften(std::size_t side, std::uint32_t life) const {
    const auto& counts = counts_[static_cast<std::size_t>(numbers_[side][life])];
    return {numbers_[side][life], counts[0] == counts[1] ? 0 : static_cast<std::int64_t>(side) + 1, 0, 0};
  }

 private:
  std::array<std::vector<std::int64_t>, 2> numbers_;
  std::vector<std::array<std::int64_t, 2>> counts_;
};

/// Of each life: the last event before it of a life that has a partner, as twice that life of the first history, plus 1
/// for its end; -1: none.
std::array<std::vector<std::int64_t>, 2> LastPairedBefore(const std::array<const History*, 2>& histories,
                                                          const std::array<std::vector<std::uint32_t>, 2>& partner) {
  std::array<std::vector<std::int64_t>, 2> before;
  for (const std::size_t side : {0U, 1U}) {
    const History& history = *histories[side];
    std::int64_t last = -1;
    for (std::size_t event = 0; event < history.life_of.size(); ++event) {
      const std::uint32_t life = history.life_of[event];
      const bool alloc = history.trace->memory[event].alloc;
      if (alloc) {
        before[side].push_back(last);
      }
      if (partner[side][life] != Alignment::kNone) {
        last = 2 * std::int64_t{side == 0 ? life : partner[side][life]} + (alloc ? 0 : 1);
      }
    }
  }
  return before;
}

}  // namespace

Alignment::Alignment(const History& one, const History& other) : histories_{&one, &other} {
  for (const Side side : {predicted, measured}) {
    partner_[side].assign(histories_[side]->lives.size(), kNone);
    in_chain_[side].assign(histories_[side]->lives.size(), false);
    const std::vector<TraceTensor>& tensors = histories_[side]->trace->tensors;
    untyped_[side] = !tensors.empty() && std::all_of(tensors.begin(), tensors.end(), [](const TraceTensor& tensor) {
      return tensor.category == Category::unknown;
    });
  }
  PairLives();
  FindChain();
  Number(predicted);
  Number(measured);
}

void Alignment::PairLives() {
  const PlaceNumbers numbers(histories_);
  const auto life = [&](std::size_t side, std::uint32_t i) -> const Life& { return histories_[side]->lives[i]; };
  const Sames sames(histories_, [&](std::size_t side, std::uint32_t i) {
    return Key{numbers.PlaceOfLife(side, i), numbers.NameOf(side, life(side, i)), life(side, i).index0,
               life(side, i).index1};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) { return sames.IfAsOften(side, i); });
  const auto neighbours = LastPairedBefore(histories_, partner_);
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    return Key{sames.NumberOf(side, i), neighbours[side][i], 0, 0};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    return Key{sames.NumberOf(side, i), 0, 0, 0};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    return Key{numbers.StepOfLife(side, i), numbers.NameOf(side, life(side, i)), life(side, i).index0,
               life(side, i).index1};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    const TraceTensor& tensor = histories_[side]->trace->tensors[life(side, i).tensor];
    return Key{numbers.PlaceOfLife(side, i), static_cast<std::int64_t>(tensor.category),
               static_cast<std::int64_t>(tensor.dtype), tensor.bytes.count()};
  });
  if (untyped_[predicted] != untyped_[measured]) {
    PairByBytes(numbers);
  }
}

void Alignment::PairByBytes(const PlaceNumbers& numbers) {
  const auto bytes = [&](std::size_t side, std::uint32_t i) {
    return histories_[side]->BytesOf(histories_[side]->lives[i]).count();
  };
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    const History& history = *histories_[side];
    return Key{numbers.PlaceOfLife(side, i), bytes(side, i), numbers.PlaceOfDeath(history, history.lives[i]), 0};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    return Key{numbers.PlaceOfLife(side, i), bytes(side, i), 0, 0};
  });
  PairBy(histories_, partner_, [&](std::size_t side, std::uint32_t i) {
    return Key{numbers.StepOfLife(side, i), bytes(side, i), 0, 0};
  });
}

/// The longest increasing subsequence by patience sorting: in order of the predicted births, `tails[k]` is the pair
/// with the smallest measured birth that ends a sequence of k + 1. Births that are in order go to the end at once.
void Alignment::FindChain() {
  const auto& ours = histories_[predicted]->lives;
  const auto& theirs = histories_[measured]->lives;
  std::vector<std::uint32_t> tails, before(ours.size(), kNone);
  const auto birth = [&](std::uint32_t life) { return theirs[partner_[predicted][life]].born; };
  for (std::uint32_t life = 0; life < ours.size(); ++life) {
    const std::uint32_t partner = partner_[predicted][life];
    if (partner == kNone || (IsResident(predicted, ours[life]) && IsResident(measured, theirs[partner]))) {
      continue;
    }
    auto place = tails.end();
    if (!tails.empty() && birth(tails.back()) > birth(life)) {
      place = std::lower_bound(tails.begin(), tails.end(), birth(life),
                               [&](std::uint32_t tail, std::size_t born) { return birth(tail) < born; });
    }
    before[life] = place == tails.begin() ? kNone : *(place - 1);
    place == tails.end() ? tails.push_back(life) : static_cast<void>(*place = life);
  }
  for (std::uint32_t life = tails.empty() ? kNone : tails.back(); life != kNone; life = before[life]) {
    chain_[predicted].push_back(ours[life].born);
    chain_[measured].push_back(birth(life));
    in_chain_[predicted][life] = in_chain_[measured][partner_[predicted][life]] = true;
  }
  std::reverse(chain_[predicted].begin(), chain_[predicted].end());
  std::reverse(chain_[measured].begin(), chain_[measured].end());
}

void Alignment::Number(Side side) {
  const std::size_t events = histories_[side]->trace->memory.size();
  segment_[side].reserve(events);
  std::uint32_t segment = 0;
  for (std::size_t event = 0; event < events; ++event) {
    segment += segment < chain_[side].size() && chain_[side][segment] == event ? 1 : 0;
    segment_[side].push_back(segment);
  }
}

std::ptrdiff_t Alignment::ChainBefore(Side side, std::size_t event) const {
  const auto after = std::lower_bound(chain_[side].begin(), chain_[side].end(), event);
  return after == chain_[side].begin() ? -1 : static_cast<std::ptrdiff_t>(*(after - 1));
}

bool Alignment::IsBirthMoved(Side side, std::uint32_t life) const {
  const std::uint32_t partner = partner_[side][life];
  const bool resident = IsResident(side, histories_[side]->lives[life]) &&
                        IsResident(Other(side), histories_[Other(side)]->lives[partner]);
  return !resident && !in_chain_[side][life];
}

std::ptrdiff_t Alignment::SameEvent(Side side, std::size_t event) const {
  const History& history = *histories_[side];
  const std::uint32_t life = history.life_of[event], partner = partner_[side][life];
  if (partner == kNone) {
    return -1;
  }
  const Life& other = histories_[Other(side)]->lives[partner];
  if (history.trace->memory[event].alloc) {
    return IsBirthMoved(side, life) ? -1 : static_cast<std::ptrdiff_t>(other.born);
  }
  const bool same = other.died != Life::kNever && segment_[Other(side)][other.died] == segment_[side][event];
  return same ? static_cast<std::ptrdiff_t>(other.died) : -1;
}

std::ptrdiff_t Alignment::SameInstant(Side side, std::ptrdiff_t instant) const {
  const Side other = Other(side);
  const History& there = *histories_[other];
  const std::uint32_t segment = instant < 0 ? 0 : segment_[side][static_cast<std::size_t>(instant)];
  std::ptrdiff_t same = segment == 0 ? -1 : static_cast<std::ptrdiff_t>(chain_[other][segment - 1]);
  for (std::ptrdiff_t event = instant; event >= 0 && segment_[side][static_cast<std::size_t>(event)] == segment;
       --event) {
    same = std::max(same, SameEvent(side, static_cast<std::size_t>(event)));
  }
  std::ptrdiff_t highest = same;
  const auto events = static_cast<std::ptrdiff_t>(there.trace->memory.size());
  for (std::ptrdiff_t event = same + 1; event < events; ++event) {
    const auto at = static_cast<std::size_t>(event);
    if (segment_[other][at] != segment || SameEvent(other, at) >= 0) {
      break;
    }
    highest = there.TotalAt(event) > there.TotalAt(highest) ? event : highest;
  }
  return highest;
}

}  // namespace tidemark
