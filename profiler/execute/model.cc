// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "models/job/validate.h"
#include "profiler/execute/counter.h"
#include "profiler/execute/operation.h"

namespace tidemark {
namespace {

constexpr double kDeviation = 0.02;

/// Box and Muller's transform of two uniform numbers.
double Normal(std::uint64_t key, std::uint64_t counter) {
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
  const std::uint64_t first = RandomBits(key ^ RandomBits(2 * counter)),
                      second = RandomBits(key ^ RandomBits(2 * counter + 1));
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(first >> 11) + 1) * kUnit));
  return radius * std::cos(2 * std::numbers::pi * static_cast<double>(second >> 11) * kUnit);
}

bool IsBias(std::string_view name) { return name.ends_with("_bias"); }
bool IsNorm(std::string_view name) { return name.starts_with("norm"); }
bool IsTrained(const Parameter& parameter) { return parameter.trainable && !parameter.tied; }

}  // namespace

Result<Model> Model::Of(const Job& job, TensorParallelPlace place) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder == nullptr) {
    return NotExecuted("networks that are no decoder");
  }
  if (decoder->kv_heads % place.size != 0) {
    return NotExecuted(fmt::format("{} key and value heads on {} tensor-parallel ranks, some of which would share one",
                                   decoder->kv_heads, place.size));
  }
  Model model;
  model.decoder_ = *decoder;
  model.place_ = place;
  TIDEMARK_ASSIGN(model.runs_, BuildBlocks(job.network, PartitionOf(job)));
  for (const BlockRun& run : model.runs_) {
    const Block& block = run.block;
    model.blocks_[block.name] = &block;
    for (const Parameter& parameter : block.parameters) {
      const std::string name = block.name + "." + parameter.name;
      model.weights_[name] = {name, &parameter};
    }
    for (const auto* pass : {&block.forward, &block.backward}) {
      for (const Action& action : *pass) {
        if (const auto* calculate = std::get_if<Calculate>(&action)) {
          model.actions_[block.name + "." + calculate->name] = calculate;
        }
      }
    }
  }
  return model;
}

const Block* Model::BlockOf(std::string_view name) const {
  const auto found = blocks_.find(name.substr(name.rfind(' ') + 1));
  return found == blocks_.end() ? nullptr : found->second;
}

std::optional<Model::Weight> Model::WeightOf(std::string_view name) const {
  const auto found = weights_.find(name.substr(name.rfind(' ') + 1));
  return found == weights_.end() ? std::nullopt : std::optional<Weight>(found->second);
}

const Calculate* Model::ActionOf(std::string_view name) const {
  const auto found = actions_.find(name);
  return found == actions_.end() ? nullptr : found->second;
}

const Block& Model::BlockOfAction(std::string_view name) const {
  const auto found = blocks_.find(name.substr(0, name.find('.')));
  TIDEMARK_CHECK(found != blocks_.end());
  return *found->second;
}

std::int64_t Model::trained() const {
  std::int64_t count = 0;
  for (const BlockRun& run : runs_) {
    for (const Parameter& parameter : run.block.parameters) {
      count += IsTrained(parameter) ? run.count : 0;
    }
  }
  return count;
}

std::int64_t Model::NumberOf(const Weight& weight, std::int64_t block) const {
  std::int64_t number = 0;
  for (const BlockRun& run : runs_) {
    std::int64_t of_block = 0;
    std::int64_t found = -1;
    for (const Parameter& parameter : run.block.parameters) {
      found = &parameter == weight.parameter ? of_block : found;
      of_block += IsTrained(parameter) ? 1 : 0;
    }
    if (found >= 0) {
      return number + block * of_block + found;
    }
    number += of_block * run.count;
  }
  TIDEMARK_CHECK(false && "a parameter of no block");
}

std::vector<std::int64_t> Model::PlacesOf(const Weight& weight) const {
  const Parameter& parameter = *weight.parameter;
  const bool divided = parameter.elements_full > parameter.elements;
  const bool by_columns = divided && (parameter.name == "wo" || parameter.name == "down");
  const bool by_rows = divided && !by_columns;
  const std::int64_t columns = parameter.elements / parameter.rows;
  const std::int64_t full_columns = by_columns ? columns * place_.size : columns;
  std::vector<std::int64_t> groups = {parameter.rows};  // rows that are divided over the ranks by themselves
  if (parameter.name.starts_with("qkv")) {
    const std::int64_t queries = decoder_.heads / place_.size * decoder_.head_size;
    groups = {queries, (parameter.rows - queries) / 2, (parameter.rows - queries) / 2};
  } else if (parameter.name.starts_with("gate_up")) {
    groups = {parameter.rows / 2, parameter.rows / 2};
  }
  std::vector<std::int64_t> places;
  places.reserve(static_cast<std::size_t>(parameter.elements));
  std::int64_t full_row = 0;
  for (const std::int64_t rows : groups) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = full_row + r + (by_rows ? place_.rank * rows : 0);
      const std::int64_t begin = row * full_columns + (by_columns ? place_.rank * columns : 0);
      for (std::int64_t c = 0; c < columns; ++c) {
        places.push_back(begin + c);
      }
    }
    full_row += by_rows ? rows * place_.size : rows;
  }
  return places;
}

std::vector<double> Model::InitialValues(const Weight& weight, std::int64_t block, std::uint64_t seed) const {
  const std::string& name = weight.parameter->name;
  const auto elements = static_cast<std::size_t>(weight.parameter->elements);
  if (IsBias(name) || IsNorm(name)) {
    return std::vector<double>(elements, IsBias(name) ? 0.0 : 1.0);
  }
  const std::uint64_t key = RandomBits(seed ^ HashOf(weight.name) ^ RandomBits(static_cast<std::uint64_t>(block)));
  std::vector<double> values;
  values.reserve(elements);
  for (const std::int64_t place : PlacesOf(weight)) {
    values.push_back(kDeviation * Normal(key, static_cast<std::uint64_t>(place)));
  }
  return values;
}

}  // namespace tidemark
