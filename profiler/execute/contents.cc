// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/program/stages.h"

namespace tidemark {
namespace {

/// Whether a buffer has all moments that there are ("moments of layer", a flat system's "moments"), not one of them
/// ("first moment of layer.wq").
bool HasAllMoments(const Buffer& buffer) {
  const std::string_view name = buffer.name;
  return name.find("moments of") != std::string_view::npos || name == "moments" || name.ends_with(" moments");
}
bool HasOneMoment(const Buffer& buffer) {
  return buffer.name.find("first moment of") != std::string::npos ||
         buffer.name.find("second moment of") != std::string::npos;
}

/// Of each number of what the buffer holds.
std::int64_t MomentsIn(const Job& job, const Buffer& buffer) {
  return HasAllMoments(buffer) ? StatesPerWeight(job.optimizer) : 1;
}

/// What both have, of one parameter of one block.
void AppendShared(const Stretch& stretch, const Stretch& other, std::vector<Shared>& shared) {
  const std::int64_t from = std::max(stretch.begin, other.begin), to = std::min(stretch.end(), other.end());
  if (from < to) {
    shared.push_back({{stretch.weight, stretch.block, from, to - from, stretch.offset + from - stretch.begin},
                      other.offset + from - other.begin});
  }
}

std::int64_t RoundedUp(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// One parameter of the model.
struct WholeTensor {
  Model::Weight weight;
  std::int64_t block = 0;
};

/// Those that a run of equal blocks holds, which `name` tells with its stage; none: the model has no such block or
/// parameter.
void Append(const Model& model, const std::string& name, const HeldRun& run, std::int64_t index, bool frozen,
            std::vector<WholeTensor>& all) {
  const std::int64_t first = model.FirstOf(name) + run.first + index;
  for (std::int64_t block = first; block < first + run.count; ++block) {
    if (const auto weight = model.WeightOf(name)) {
      all.push_back({*weight, block});
    } else if (const Block* of = model.BlockOf(name)) {
      for (const Parameter& parameter : of->parameters) {
        if (!parameter.tied && (parameter.trainable || frozen)) {
          all.push_back({*model.WeightOf(name + "." + parameter.name), block});
        }
      }
    }
  }
}

/// Lays out one holding behind what a buffer has already.
class Placing {
 public:
  Placing(const Holding& holding, std::vector<WholeTensor> all, std::int64_t rank, Contents& contents)
      : holding_(holding), all_(std::move(all)), rank_(rank), contents_(contents) {}

  void Append() {
    const std::int64_t start = contents_.elements;
    if (holding_.cut == Cut::together) {
      AppendTogether();
      return;
    }
    if (holding_.cut == Cut::none) {
      for (const WholeTensor& whole : all_) {
        Add(whole, 0, whole.weight.parameter->elements);
      }
    } else if (holding_.parts == Parts::own) {
      AppendPart(rank_);
    } else {
      for (std::int64_t rank = 0; rank < holding_.ranks; ++rank) {
        AppendPart(rank);
      }
    }
    contents_.elements = start + RoundedUp(contents_.elements - start, holding_.multiple);
  }

 private:
  void AppendPart(std::int64_t rank) {
    for (const WholeTensor& whole : all_) {
      const Parameter& parameter = *whole.weight.parameter;
      const std::int64_t unit = holding_.cut == Cut::rows ? parameter.elements / parameter.ShardedRows() : 1;
      const std::int64_t part = RoundedUp(parameter.elements / unit, holding_.ranks) / holding_.ranks * unit;
      const std::int64_t start = contents_.elements, begin = std::min(rank * part, parameter.elements);
      Add(whole, begin, std::min(part, parameter.elements - begin));
      contents_.elements = start + part;
    }
  }

  /// One range of the whole: that of this rank, or from the first to the end of the last.
  void AppendTogether() {
    std::vector<std::int64_t> starts;
    std::int64_t end = 0;
    for (const WholeTensor& whole : all_) {
      starts.push_back(RoundedUp(end, holding_.aligned));
      end = starts.back() + whole.weight.parameter->elements;
    }
    const std::int64_t part = RoundedUp(RoundedUp(end, holding_.multiple), holding_.ranks) / holding_.ranks;
    const bool own = holding_.parts == Parts::own;
    const std::int64_t from = own ? rank_ * part : 0, to = from + part * (own ? 1 : holding_.ranks);
    const std::int64_t start = contents_.elements;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const std::int64_t elements = all_[i].weight.parameter->elements;
      const std::int64_t first = std::clamp<std::int64_t>(from - starts[i], 0, elements);
      const std::int64_t last = std::clamp<std::int64_t>(to - starts[i], 0, elements);
      if (!holding_.unpadded) {
        contents_.elements = start + std::clamp(starts[i] + first, from, to) - from;
      }
      Add(all_[i], first, last - first);
      contents_.stretches.back().joined = i > 0;
    }
    if (!holding_.unpadded) {
      contents_.elements = start + to - from;
    }
  }

  void Add(const WholeTensor& whole, std::int64_t begin, std::int64_t elements) {
    contents_.stretches.push_back({whole.weight, whole.block, begin, elements, contents_.elements});
    contents_.elements += elements;
  }

  const Holding& holding_;
  std::vector<WholeTensor> all_;
  std::int64_t rank_;
  Contents& contents_;
};

}  // namespace

std::optional<Contents> ContentsOf(const Model& model, const Buffer& buffer, std::int64_t index) {
  std::vector<Holding> holds = buffer.holds;
  if (holds.empty()) {
    Holding& named = holds.emplace_back();
    named.of = {{buffer.name}};
    named.frozen = buffer.category == Category::parameter;
  }
  const auto stage = buffer.holds.empty() ? std::nullopt : StageIn(buffer.name);
  Contents contents;
  for (const Holding& holding : holds) {
    const std::optional<std::int64_t> shard = model.ShardOf(holding.ranks);
    if (!shard) {
      return std::nullopt;
    }
    std::vector<WholeTensor> all;
    for (const HeldRun& run : holding.of) {
      const std::string name = stage ? fmt::format("stage {} {}", *stage, run.name) : run.name;
      Append(model, name, run, index, holding.frozen, all);
    }
    Placing(holding, std::move(all), *shard, contents).Append();
  }
  if (contents.elements == 0 || buffer.elements % contents.elements != 0) {
    return std::nullopt;
  }
  return contents;
}

std::shared_ptr<const Contents> ContentsTable::Of(const Model& model, const Buffer& buffer, std::int64_t index) {
  const auto [at, is_new] = known_.try_emplace({&buffer, index});
  if (is_new) {
    if (auto contents = ContentsOf(model, buffer, index)) {
      at->second = std::make_shared<const Contents>(std::move(*contents));
    }
  }
  return at->second;
}

std::vector<Shared> SharedBy(const Contents& first, const Contents& second) {
  std::vector<Shared> shared;
  if (first.stretches.size() == 1) {  // an index of the second would take longer than a look at all of it
    const Stretch& one = first.stretches.front();
    for (const Stretch& other : second.stretches) {
      if (other.block == one.block && other.weight.name == one.weight.name) {
        AppendShared(one, other, shared);
      }
    }
    return shared;
  }
  std::multimap<std::pair<std::string_view, std::int64_t>, const Stretch*> known;
  for (const Stretch& stretch : second.stretches) {
    known.emplace(std::pair<std::string_view, std::int64_t>(stretch.weight.name, stretch.block), &stretch);
  }
  for (const Stretch& stretch : first.stretches) {
    const auto [begin, end] = known.equal_range({stretch.weight.name, stretch.block});
    for (auto at = begin; at != end; ++at) {
      AppendShared(stretch, *at->second, shared);
    }
  }
  return shared;
}

bool IsMoments(const Buffer& buffer) {
  return buffer.category == Category::optimizer && (HasAllMoments(buffer) || HasOneMoment(buffer));
}

std::int64_t StatesPerWeight(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? 2 : kind == OptimizerKind::sgd_momentum ? 1 : 0;
}

kernels::TensorType StateType(const Job& job, const Buffer& buffer, const Contents& contents) {
  const Precision& precision = job.axes.precision;
  const DType masters = precision.master.value_or(precision.params);
  const std::int64_t elements = contents.elements;
  if (!buffer.holds.empty() && buffer.holds.front().masters) {
    return {masters, elements};
  }
  switch (buffer.category) {
    case Category::parameter:
      return {precision.params, elements};
    case Category::gradient:
      return {precision.gradients, elements};
    case Category::accumulator:
      return {precision.accumulate, elements};
    case Category::optimizer:
      return IsMoments(buffer) ? kernels::TensorType{precision.optimizer, elements * MomentsIn(job, buffer)}
                               : kernels::TensorType{masters, elements};
    default:
      return {buffer.dtype, elements};
  }
}

}  // namespace tidemark
