// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/explanation_causes.h"

#include <algorithm>
#include <cstdlib>

namespace tidemark {

namespace {

/// Vectors of a block may be cut as before where its matrices are not.
bool IsNearlyGone(Bytes before, Bytes after) {
  constexpr std::int64_t kFew = 100;
  return after * kFew < before;
}

}  // namespace

Causes::Key Causes::KeyOf(const LiveBuffers& live) {
  return {live.category, std::string(Name(live.dtype)), live.sharding};
}

Causes::Causes(const Peak& before, const Peak& after) {
  Add(before, false);
  Add(after, true);
  JoinChanged();
  for (const bool is_after : {false, true}) {
    for (const LiveBuffers& live : (is_after ? after : before).live) {
      AddLife(live, is_after);
    }
  }
}

void Causes::Add(const Peak& peak, bool is_after) {
  for (const LiveBuffers& live : peak.live) {
    Cause& cause = causes_[KeyOf(live)];
    cause.category = live.category;
    cause.dtype_before = cause.dtype_after = Name(live.dtype);
    cause.sharding_before = cause.sharding_after = live.sharding;
    (is_after ? cause.after : cause.before) += live.bytes;
    std::int64_t& copies = is_after ? cause.copies_after : cause.copies_before;
    copies = std::max(copies, live.copies);
  }
}

/// Where (nearly) all of a category is of one kind before and of another one after, it is one thing that has changed;
/// so is what alone of its category and dtype is cut into other parts, which is looked for first.
void Causes::JoinChanged() {
  JoinAlone([](const Cause& cause) { return std::pair(cause.category, cause.dtype_before); });
  JoinAlone([](const Cause& cause) { return std::pair(cause.category, std::string()); });
}

void Causes::JoinAlone(const std::function<std::pair<Category, std::string>(const Cause&)>& kind_of) {
  std::map<std::pair<Category, std::string>, std::vector<Key>> gone, come;
  for (const auto& [key, cause] : causes_) {
    if (IsNearlyGone(cause.before, cause.after) || IsNearlyGone(cause.after, cause.before)) {
      (cause.after < cause.before ? gone : come)[kind_of(cause)].push_back(key);
    }
  }
  for (const auto& [kind, keys] : gone) {
    if (keys.size() != 1 || come[kind].size() != 1) {
      continue;
    }
    const Cause old = causes_.at(keys.front());
    Cause& now = causes_.at(come[kind].front());
    now.before += old.before;
    now.after += old.after;
    now.copies_before = old.copies_before;
    now.dtype_before = old.dtype_before;
    now.sharding_before = old.sharding_before;
    joined_.emplace(keys.front(), come[kind].front());
    causes_.erase(keys.front());
  }
}

void Causes::AddLife(const LiveBuffers& live, bool is_after) {
  Key key = KeyOf(live);
  for (auto joined = joined_.find(key); joined != joined_.end(); joined = joined_.find(key)) {
    key = joined->second;  // which may have been joined to another one since
  }
  Cause& cause = causes_.at(key);
  if (cause.grows() != is_after) {
    return;
  }
  const bool is_first = lives_.insert(&cause).second;
  if (is_first || live.since < cause.since) {
    cause.since = live.since;
    cause.born = live.born;
  }
  if (is_first || (cause.until && (!live.until || *live.until > *cause.until))) {
    cause.until = live.until;
    cause.died = live.died;
  }
}

std::vector<const Cause*> Causes::ThatGrow(bool grow) const {
  std::vector<const Cause*> all;
  for (const auto& [key, cause] : causes_) {
    if (cause.delta() != Bytes(0) && cause.grows() == grow) {
      all.push_back(&cause);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Cause* a, const Cause* b) {
    return std::abs(a->delta().count()) > std::abs(b->delta().count());
  });
  return all;
}

std::vector<const Cause*> Causes::Unchanged() const {
  std::vector<const Cause*> all;
  for (const auto& [key, cause] : causes_) {
    if (cause.delta() == Bytes(0)) {
      all.push_back(&cause);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Cause* a, const Cause* b) { return a->after > b->after; });
  return all;
}

}  // namespace tidemark
