// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/network/block.h"

namespace tidemark {

/// Whether "block.parameter" matches one of the globs (fnmatch); no globs match everything.
bool IsTrainable(std::span<const std::string> globs, std::string_view qualified_name);

/// Fills one Block: hands out ids, and derives the memory traffic of streaming operators from the tensors they touch.
class BlockBuilder {
 public:
  using Tensors = std::vector<TensorId>;

  /// `trainable` must outlive the builder.
  BlockBuilder(std::string name, std::span<const std::string> trainable, DType compute);

  /// A parameter is trained where it says so and its name in this block is one of those to be trained.
  ParameterId AddParameter(Parameter parameter);
  ConstantId AddConstant(Constant constant);
  /// A tensor in the compute dtype unless another is named.
  TensorId AddTensor(std::string name, std::int64_t elements, Category category = Category::activation,
                     std::optional<DType> dtype = std::nullopt);
  /// A tensor that is a view of the block `pool`.
  TensorId AddPooled(std::string name, std::int64_t elements, Category category, std::string pool);

  /// Adds an operator and returns it, for the fields that few operators have.
  Calculate& Add(std::vector<Action>& pass, std::string name, const Operator& op, Tensors reads, Tensors writes);
  /// Adds a Pointwise over the elements of the first tensor written, which reads and writes each tensor once.
  Calculate& AddPointwise(std::vector<Action>& pass, std::string name, Tensors reads, Tensors writes,
                          std::int64_t flops_per_element = 1);
  /// Drops elements of what is read by new random numbers; what is left, and which they are.
  Calculate& AddDropout(std::vector<Action>& pass, std::string name, TensorId read, Tensors writes);
  /// Adds the rows of what is read to the gradient of a vector.
  Calculate& AddColumnSum(std::vector<Action>& pass, std::string name, Tensors reads, ParameterId sums);
  /// Adds a collective among tensor-parallel ranks and returns it, for the fields that few collectives have.
  Communicate& AddCollective(std::vector<Action>& pass, CollectiveKind kind, std::string name, TensorId from,
                             TensorId to, bool recompute = false);
  /// As AddCollective, but what is added until AddAwait runs beside it.
  void AddAsynchronous(std::vector<Action>& pass, CollectiveKind kind, const std::string& name, TensorId from,
                       TensorId to, bool recompute = false);
  void AddAwait(std::vector<Action>& pass, const std::string& name, TensorId from, TensorId to);
  /// Begins to hand tensors of one dtype round the context-parallel ring, each into one of the others.
  void AddShift(std::vector<Action>& pass, CollectiveKind kind, const std::string& name, Tensors from, Tensors to);
  /// What is added behind it comes after they have arrived.
  void AwaitShift(std::vector<Action>& pass, const std::string& name, Tensors from, Tensors to);

  std::int64_t BytesOf(const Tensors& tensors) const;
  bool trainable(ParameterId id) const { return block_.parameters.at(id.index).trainable; }
  Parameter& parameter(ParameterId id) { return block_.parameters.at(id.index); }
  const Parameter& parameter(ParameterId id) const { return block_.parameters.at(id.index); }
  const Tensor& tensor(TensorId id) const { return block_.tensors.at(id.index); }
  DType compute() const { return compute_; }
  std::vector<Action>& forward() { return block_.forward; }
  std::vector<Action>& backward() { return block_.backward; }
  Block& block() { return block_; }
  Block Take() && { return std::move(block_); }

 private:
  Block block_;
  std::span<const std::string> trainable_;
  DType compute_;
};

}  // namespace tidemark
