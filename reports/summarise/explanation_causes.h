// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/summarise/peak.h"

namespace tidemark {

/// Tensors of one category that are alike in all that a paragraph says of them: dtype, sharding, and how long they
/// live.
struct Cause {
  Category category = Category::activation;
  std::string dtype_before, dtype_after, sharding_before, sharding_after;
  Bytes before, after;                               ///< at the peaks
  std::int64_t copies_before = 0, copies_after = 0;  ///< microbatches that have some of them at the peaks
  /// The longest life, on the side that has more of them, of equals after. No `until`: beyond the step.
  PhasePlace born, died;
  Nanos since;
  std::optional<Nanos> until;

  Bytes delta() const { return after - before; }
  bool grows() const { return after >= before; }
  /// Those of the side that has more.
  const std::string& dtype() const { return grows() ? dtype_after : dtype_before; }
  const std::string& sharding() const { return grows() ? sharding_after : sharding_before; }
  bool changes() const { return dtype_before != dtype_after || sharding_before != sharding_after; }
};

/// What is alive at two peaks, cause by cause; the differences sum to that of the peaks.
class Causes {
 public:
  Causes(const Peak& before, const Peak& after);

  /// Those of which there is more afterwards, or less. Largest difference first.
  std::vector<const Cause*> ThatGrow(bool grow) const;
  /// Largest first.
  std::vector<const Cause*> Unchanged() const;

 private:
  using Key = std::tuple<Category, std::string, std::string>;

  static Key KeyOf(const LiveBuffers& live);
  void Add(const Peak& peak, bool is_after);
  void JoinChanged();
  /// Where of one kind there is one cause before only and one after only, they become one.
  void JoinAlone(const std::function<std::pair<Category, std::string>(const Cause&)>& kind_of);
  void AddLife(const LiveBuffers& live, bool is_after);

  std::map<Key, Cause> causes_;
  std::map<Key, Key> joined_;  ///< what is told as part of another cause
  std::set<const Cause*> lives_;
};

}  // namespace tidemark
