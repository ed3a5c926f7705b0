// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/explanation.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "reports/summarise/family_name.h"
#include "traces/place.h"

namespace tidemark {
namespace {

using Key = std::pair<std::string, Category>;

/// A family over a whole trace.
struct Life {
  Bytes alive, most;
  std::string dtype, sharding, born, dies;
};

std::string LabelOr(const Trace& trace, std::size_t event, const char* otherwise) {
  const std::string label = PhaseLabel(PlaceOf(trace, event));
  return label.empty() ? otherwise : label;
}

std::map<Key, Life> LivesOf(const Trace& trace) {
  std::map<Key, Life> lives;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    Life& life = lives[{FamilyName(tensor.name), tensor.category}];
    if (life.dtype.empty()) {
      life.dtype = Name(tensor.dtype);
      life.sharding = tensor.sharding;
      life.born = LabelOr(trace, i, kBeforeStep);
    }
    life.alive = event.alloc ? life.alive + tensor.bytes : life.alive - tensor.bytes;
    life.most = std::max(life.most, life.alive);
    life.dies = life.alive == Bytes(0) ? LabelOr(trace, i, "outside of phases") : "after the step";
  }
  return lives;
}

std::string FromTo(const std::string& before, const std::string& after) {
  return before.empty() || before == after ? after : after.empty() ? before : before + " -> " + after;
}

class TensorJoin {
 public:
  void Add(const Trace& trace, Bytes ExplainedTensor::*most) {
    for (const auto& [key, life] : LivesOf(trace)) {
      ExplainedTensor& tensor = tensors_[key];
      tensor.name = key.first;
      tensor.category = key.second;
      tensor.dtype = FromTo(tensor.dtype, life.dtype);
      tensor.sharding = FromTo(tensor.sharding, life.sharding);
      tensor.*most = life.most;
      if (life.most >= std::max(tensor.most_before, tensor.most_after)) {
        tensor.born = life.born;
        tensor.dies = life.dies;
      }
    }
  }

  /// What is alive at a peak is told with the life that it has there.
  void AddPeak(const Peak& peak, Bytes ExplainedTensor::*bytes) {
    for (const LiveBuffers& live : peak.live) {
      ExplainedTensor& tensor = tensors_.at({live.name, live.category});
      tensor.*bytes += live.bytes;
      if (tensor.*bytes >= std::max(tensor.before, tensor.after)) {
        tensor.born = live.since_phase;
        tensor.dies = live.until_phase;
      }
      tensor.in_peak = tensor.in_peak || live.bytes != Bytes(0);
    }
  }

  std::vector<ExplainedTensor> Sorted() && {
    std::vector<ExplainedTensor> all;
    for (auto& [key, tensor] : tensors_) {
      all.push_back(std::move(tensor));
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      const auto rank = [](const ExplainedTensor& tensor) {
        return std::tuple(std::abs(tensor.delta().count()), std::max(tensor.before, tensor.after),
                          std::max(tensor.most_before, tensor.most_after));
      };
      return rank(a) > rank(b);
    });
    return all;
  }

 private:
  std::map<Key, ExplainedTensor> tensors_;
};

std::vector<ExplainedTime> CompareTimes(const TimeReport& before, const TimeReport& after) {
  return {{"compute", before.compute, after.compute},
          {"recompute", before.recompute, after.recompute},
          {"optimizer", before.optimizer, after.optimizer},
          {"exposed communication", before.exposed_communication, after.exposed_communication},
          {"pipeline bubble", before.bubble, after.bubble},
          {"host", before.host, after.host}};
}

}  // namespace

std::optional<Category> GrowsMost(const Explanation& explanation) {
  std::optional<Category> most;
  Bytes by;
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const Bytes growth =
        explanation.after.peak().by_category[category] - explanation.before.peak().by_category[category];
    if (growth > by) {
      by = growth;
      most = category;
    }
  }
  return most;
}

Explanation Explain(ExplainedSide before, ExplainedSide after, const std::vector<std::string>& asked) {
  Explanation explanation;
  TensorJoin join;
  const Trace &old_trace = *before.report.Worst().trace, &new_trace = *after.report.Worst().trace;
  join.Add(old_trace, &ExplainedTensor::most_before);
  join.Add(new_trace, &ExplainedTensor::most_after);
  join.AddPeak(before.peak(), &ExplainedTensor::before);
  join.AddPeak(after.peak(), &ExplainedTensor::after);
  explanation.tensors = std::move(join).Sorted();
  explanation.times = CompareTimes(before.report.time, after.report.time);
  explanation.changes = CompareJobs({before.report.job_yaml, after.report.job_yaml});
  const auto rest = std::stable_partition(
      explanation.changes.begin(), explanation.changes.end(),
      [&](const JobDifference& change) { return std::find(asked.begin(), asked.end(), change.key) != asked.end(); });
  explanation.asked = static_cast<std::size_t>(rest - explanation.changes.begin());
  explanation.before = std::move(before);
  explanation.after = std::move(after);
  return explanation;
}

}  // namespace tidemark
