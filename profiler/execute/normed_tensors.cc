// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/normed_tensors.h"

#include <algorithm>
#include <span>
#include <variant>

#include "base/check.h"
#include "sim/program/stages.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

std::pair<std::string, std::int64_t> KeyOf(const Stretch& stretch) { return {stretch.weight.name, stretch.block}; }

}  // namespace

NormedTensors::NormedTensors(const Model& model, const Program& program) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(program.names, [&](const std::string& one) { return WithoutStage(one) == name; });
  };
  if (!has(kGradientNorms)) {
    return;
  }
  host_takes_coefficient_ = !has(kClipCoefficient);
  sums_over_experts_ = std::ranges::any_of(program.nodes, [&](const Node& node) {
    const auto* sum = std::get_if<Collective>(&node);
    return sum != nullptr && WithoutStage(program.names[sum->name.index]) == kReduceNorm &&
           program.groups[sum->group.index].name == "ep x etp";
  });
  FindUpdated(model, program);
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t> loops) {
    const auto* compute = std::get_if<Compute>(&program.nodes[at]);
    if (compute == nullptr || WithoutStage(program.names[compute->name.index]) != kGradientNorms) {
      return true;
    }
    for (const BufferRef& read : compute->reads) {
      const Buffer& gradient = program.buffers[read.buffer.index];
      if (const auto contents = ContentsOf(model, gradient, Resolve(read.index.front(), loops))) {
        Number(*contents, compute->own_part);
      }
    }
    return true;
  });
}

void NormedTensors::FindUpdated(const Model& model, const Program& program) {
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t> loops) {
    const auto* compute = std::get_if<Compute>(&program.nodes[at]);
    if (compute == nullptr || !compute->own_part) {
      return true;
    }
    for (const BufferRef& write : compute->writes) {
      const Buffer& state = program.buffers[write.buffer.index];
      const std::int64_t index = Resolve(write.index.front(), loops);
      const auto contents = state.category == Category::optimizer ? ContentsOf(model, state, index) : std::nullopt;
      Key tensor;
      for (std::size_t i = 0; contents && i < contents->stretches.size(); ++i) {
        const Stretch& stretch = contents->stretches[i];
        tensor = stretch.joined ? tensor : KeyOf(stretch);
        updated_.try_emplace(KeyOf(stretch), Updated{stretch, tensor});
      }
    }
    return true;
  });
}

void NormedTensors::Number(const Contents& contents, bool own_part) {
  for (const Stretch& stretch : contents.stretches) {
    if (own_part) {
      if (const auto updated = updated_.find(KeyOf(stretch)); updated != updated_.end()) {
        numbers_.try_emplace(updated->second.tensor, count());
      }
    } else if (!stretch.joined) {
      numbers_.try_emplace(KeyOf(stretch), count());
    }
  }
}

std::optional<std::vector<NormedTensors::Part>> NormedTensors::PartsOf(const Contents& contents, bool own_part) const {
  std::vector<Part> parts;
  for (const Stretch& stretch : contents.stretches) {
    if (own_part) {
      const auto found = updated_.find(KeyOf(stretch));
      if (found == updated_.end()) {
        return std::nullopt;
      }
      const auto& [own, tensor] = found->second;
      const std::vector<Shared> shared = SharedBy({{stretch}, stretch.elements}, {{own}, own.elements});
      Stretch part = shared.empty() ? stretch : shared.front().stretch;
      part.elements = shared.empty() ? 0 : part.elements;
      parts.push_back({part, numbers_.at(tensor)});
    } else {
      parts.push_back({stretch, stretch.joined ? parts.back().tensor : numbers_.at(KeyOf(stretch))});
    }
  }
  return parts;
}

Contents NormedTensors::OwnPartOf(Contents gradient) const {
  const auto parts = PartsOf(gradient, true);
  TIDEMARK_CHECK(parts);  // who measures it has been bound to the same parts
  gradient.stretches.clear();
  for (const Part& part : *parts) {
    gradient.stretches.push_back(part.stretch);
  }
  return gradient;
}

}  // namespace tidemark
