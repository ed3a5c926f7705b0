// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/contents.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// A buffer that an operation names.
struct Operand {
  kernels::Tensor tensor;  ///< without data where only types are asked for; no elements yet where nothing has written
  const Buffer* buffer = nullptr;
  std::int64_t index = 0;  ///< which of the family's, by its first coordinate
  BufferRef ref;
};

/// How a dtype is stored: floating ones as fp64 where the run is exact.
DType Stored(DType dtype, bool exact);

/// What surrounds one operation.
struct OperationContext {
  const Job& job;
  const Model& model;
  std::string_view name;  ///< "layer.wq.forward", "gradient to bucket"
  const Operator& op;
  double scale = 1;       ///< Compute::scale
  double loss_scale = 1;  ///< that of the operation that began this backward pass
  std::span<const Operand> reads, writes;
  bool exact = false;             ///< every floating dtype is fp64
  std::int64_t update = 1;        ///< which update of the training this one is, from 1
  std::uint64_t seed = 0;         ///< of this operation's random numbers in this step, the same for all samples
  std::int64_t first_sample = 0;  ///< of the training, in this microbatch

  DType Stored(DType dtype) const { return tidemark::Stored(dtype, exact); }
  /// Whether write number `i` adds to what is there: it is read as well.
  bool Adds(std::size_t i) const;
  kernels::ConstTensor Read(std::size_t i) const { return reads[i].tensor; }
};

/// What an operation makes, as its kernel declares it, and the kernel. `run` gets one tensor per write.
struct Operation {
  std::vector<kernels::TensorType> outputs;
  std::function<void(std::span<const kernels::Tensor> writes)> run;
};

/// An operation of the network's tables: `row` is its row.
Result<Operation> BindNetworkOperation(const OperationContext& context, const Calculate& row);
/// The passes of a loss (models/network/loss_table.h).
Result<Operation> BindLoss(const OperationContext& context, std::string_view action);
/// What a system does with weights, gradients and optimizer state: copies, sums, zeros, updates.
Result<Operation> BindStateOperation(const OperationContext& context);
/// Clipping by the norm of all gradients; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindClip(const OperationContext& context);
/// Any of these.
Result<Operation> Bind(const OperationContext& context);

/// "no kernel for ...", with exit code 3.
Error NotExecuted(std::string_view what);

}  // namespace tidemark
