// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/network/network.h"

namespace tidemark {

/// The network of the worked numbers: 4 Llama-style layers, n = 2 x 2048 tokens, h 1024, f 2816, a 16, k 4, V 32000.
inline Network WorkedNetwork() {
  Decoder d;
  d.layers = 4;
  d.hidden = 1024;
  d.ffn = 2816;
  d.heads = 16;
  d.kv_heads = 4;
  d.head_size = 64;
  d.vocabulary = 32000;
  return {"worked", d, {}};
}

inline Partition WorkedPartition(std::int64_t tp, bool sequence_parallel) {
  Partition p;
  p.micro_batch_size = 2;
  p.sequence_length = 2048;
  p.tp = tp;
  p.sequence_parallel = sequence_parallel;
  p.gathered = Partition::Gathered::again_pooled;
  p.packed_gate_up = true;
  return p;
}

/// Two tensor-parallel ranks whose gathers and scatters run beside products, as with nanotron's
/// tp_linear_async_communication.
inline Partition AsyncPartition() {
  Partition p = WorkedPartition(2, true);
  p.gathered = Partition::Gathered::again;
  p.linear_order = Partition::LinearOrder::own_rows_first;
  return p;
}

inline std::vector<BlockRun> Build(const Network& network, const Partition& partition) {
  auto runs = BuildBlocks(network, partition);
  EXPECT_TRUE(runs.ok()) << runs.error().Text();
  return runs.ok() ? *std::move(runs) : std::vector<BlockRun>{};
}

inline const std::vector<TensorId>& Reads(const Action& action) {
  return std::visit([](const auto& a) -> const std::vector<TensorId>& { return a.reads; }, action);
}
inline const std::vector<TensorId>& Writes(const Action& action) {
  return std::visit([](const auto& a) -> const std::vector<TensorId>& { return a.writes; }, action);
}
inline const std::string& NameOf(const Action& action) {
  return std::visit([](const auto& a) -> const std::string& { return a.name; }, action);
}

inline std::int64_t SizeInBytes(const Tensor& tensor) { return (SizeOf(tensor.dtype) * tensor.elements).count(); }

/// What the block keeps from its forward to its backward pass, by name: tensors of the forward pass (and its input)
/// that a backward action reads. Pools stay for ever, token ids and labels are nobody's activation.
inline std::map<std::string, std::int64_t> Saved(const Block& block) {
  std::set<TensorId> forward = {block.input};
  for (const Action& action : block.forward) {
    forward.insert(Writes(action).begin(), Writes(action).end());
  }
  std::map<std::string, std::int64_t> saved;
  for (const Action& action : block.backward) {
    for (const TensorId id : Reads(action)) {
      const Tensor& tensor = block.tensors.at(id.index);
      if (forward.contains(id) && tensor.pool.empty()) {
        saved[tensor.name] = SizeInBytes(tensor);
      }
    }
  }
  return saved;
}

inline std::int64_t SavedTotal(const Block& block) {
  std::int64_t total = 0;
  for (const auto& [name, bytes] : Saved(block)) {
    total += bytes;
  }
  return total;
}

/// Highest sums of one category, when a tensor lives from the first action that writes it to the last that touches it.
struct CategoryPeaks {
  std::int64_t forward = 0;  ///< highest during the forward pass
  std::int64_t between = 0;  ///< alive between the passes
  std::int64_t all = 0;      ///< highest of both passes
};

inline CategoryPeaks PeaksOf(const Block& block, Category category) {
  std::vector<Action> actions = block.forward;
  actions.insert(actions.end(), block.backward.begin(), block.backward.end());
  std::map<TensorId, std::pair<std::size_t, std::size_t>> lives;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    for (const auto* ids : {&Reads(actions[i]), &Writes(actions[i])}) {
      for (const TensorId id : *ids) {
        lives.try_emplace(id, i, i).first->second.second = i;
      }
    }
  }
  CategoryPeaks peaks;
  const std::size_t split = block.forward.size();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    std::int64_t alive = 0;
    std::int64_t across = 0;
    for (const auto& [id, life] : lives) {
      const Tensor& tensor = block.tensors.at(id.index);
      if (tensor.category == category && life.first <= i && i <= life.second) {
        alive += SizeInBytes(tensor);
      }
      if (tensor.category == category && life.first < split && life.second >= split) {
        across += SizeInBytes(tensor);
      }
    }
    peaks.all = std::max(peaks.all, alive);
    peaks.between = across;
    peaks.forward = i < split ? std::max(peaks.forward, alive) : peaks.forward;
  }
  return peaks;
}

inline std::string Refusal(const Network& network, const Partition& partition) {
  const auto runs = BuildBlocks(network, partition);
  EXPECT_FALSE(runs.ok());
  return runs.ok() ? std::string() : runs.error().Text();
}

/// The actions of a pass, from the first whose name begins with `from` to the first that is called `to`.
inline std::vector<std::string> Between(const std::vector<Action>& pass, const std::string& from,
                                        const std::string& to) {
  std::vector<std::string> names;
  for (const Action& action : pass) {
    const std::string name = std::visit([](const auto& leaf) { return leaf.name; }, action);
    if (!names.empty() || name.starts_with(from)) {
      names.push_back(name);
    }
    if (!names.empty() && name == to) {
      break;
    }
  }
  return names;
}

}  // namespace tidemark
