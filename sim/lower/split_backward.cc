// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/split_backward.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "sim/lower/lifetime.h"

namespace tidemark {
namespace {

bool IsWeightGradient(const Action& action) {
  const auto* calculation = std::get_if<Calculate>(&action);
  return calculation != nullptr && !calculation->gradients.empty() && calculation->writes.empty();
}

bool Writes(const Action& action, TensorId tensor) {
  bool writes = false;
  ForEachTouch(action, [&](TensorId touched, bool write) { writes |= write && touched == tensor; });
  return writes;
}

/// A function done again is done again as a whole: also what of it only weight gradients read.
bool IsDoneAgain(const Action& action) {
  const auto* calculation = std::get_if<Calculate>(&action);
  return calculation != nullptr && calculation->recompute;
}

/// Waiting for a collective is no use of its result, nor is holding a tensor.
bool Acts(const Action& action) {
  return !std::holds_alternative<Await>(action) && !std::holds_alternative<Hold>(action);
}

/// Whether everything that an action writes is read by actions that wait, and by no other.
bool OnlyServesWaiting(const Block& block, std::size_t action, const std::vector<bool>& waits) {
  bool serves = false;
  for (std::size_t i = 0; i < block.backward.size(); ++i) {
    ForEachTouch(block.backward[i], [&](TensorId tensor, bool) {
      serves |= i != action && waits[i] && Writes(block.backward[action], tensor);
    });
  }
  for (std::size_t i = 0; i < block.backward.size() && serves; ++i) {
    if (!Acts(block.backward[i])) {
      continue;
    }
    ForEachTouch(block.backward[i], [&](TensorId tensor, bool) {
      serves &= i == action || waits[i] || !Writes(block.backward[action], tensor);
    });
  }
  return serves;
}

/// A collective that waits has nothing to run beside, and nobody waits for it before.
void StopAwaiting(Block& block, std::vector<Action>& later) {
  for (Action& action : later) {
    auto* communication = std::get_if<Communicate>(&action);
    if (communication == nullptr) {
      continue;
    }
    communication->asynchronous = false;
    for (Action& other : block.backward) {
      if (auto* await = std::get_if<Await>(&other)) {
        const auto own = [&](TensorId tensor) { return Writes(action, tensor); };
        std::erase_if(await->reads, own);
        std::erase_if(await->writes, own);
      }
    }
  }
}

/// What waits cannot lie in a pooled block, which others write meanwhile.
void TakeOutOfPool(Block& block, const std::vector<Action>& later) {
  std::vector<bool> written(block.tensors.size()), waits(block.tensors.size());
  for (const Action& action : block.backward) {
    ForEachTouch(action, [&](TensorId tensor, bool write) { written[tensor.index] = written[tensor.index] || write; });
  }
  for (const Action& action : later) {
    ForEachTouch(action, [&](TensorId tensor, bool write) { waits[tensor.index] = waits[tensor.index] || !write; });
  }
  for (std::size_t i = 0; i < block.tensors.size(); ++i) {
    if (written[i] && waits[i]) {
      block.tensors[i].pool.clear();
    }
  }
}

/// Lets an action write the gradients of weights that it makes beside others to tensors of their own, and hands them
/// over in `later`.
void PutAside(Block& block, Action& action, DType dtype, std::vector<Action>& later) {
  auto* calculation = std::get_if<Calculate>(&action);
  if (calculation == nullptr) {
    return;
  }
  for (const ParameterId parameter : calculation->gradients) {
    const Parameter& of = block.parameters[parameter.index];
    if (!of.trainable) {
      continue;
    }
    const TensorId aside{static_cast<std::uint32_t>(block.tensors.size())};
    block.tensors.push_back({of.name + " gradient put aside", Category::gradient, dtype, of.elements, {}, {}});
    calculation->writes.push_back(aside);
    const std::int64_t bytes = (SizeOf(dtype) * 2 * of.elements).count();
    later.push_back(Calculate{Pointwise{of.elements, bytes, 1}, of.name + ".hand_over", {aside}, {}, {}, {parameter}});
  }
  calculation->gradients.clear();
}

}  // namespace

SplitBlock SplitBackward(const Block& block, DType gradients) {
  std::vector<bool> waits(block.backward.size());
  std::transform(block.backward.begin(), block.backward.end(), waits.begin(), IsWeightGradient);
  // What serves an action stands before it, so one walk backwards finds all.
  for (std::size_t i = block.backward.size(); i-- > 0;) {
    const bool may_wait = Acts(block.backward[i]) && !IsDoneAgain(block.backward[i]);
    waits[i] = waits[i] || (may_wait && OnlyServesWaiting(block, i, waits));
  }
  SplitBlock split{block, block, 0};
  std::vector<Action> later;
  split.block.backward.clear();
  for (std::size_t i = 0; i < block.backward.size(); ++i) {
    if (waits[i]) {
      later.push_back(block.backward[i]);
    } else {
      split.block.backward.push_back(block.backward[i]);
      PutAside(split.block, split.block.backward.back(), gradients, later);
    }
  }
  split.weights = split.block.backward.size();
  StopAwaiting(split.block, later);
  TakeOutOfPool(split.block, later);
  for (std::size_t i = 0; i < block.tensors.size(); ++i) {
    split.whole.tensors[i].pool = split.block.tensors[i].pool;
  }
  split.block.backward.insert(split.block.backward.end(), later.begin(), later.end());
  return split;
}

}  // namespace tidemark
