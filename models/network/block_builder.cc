// SPDX-License-Identifier: Apache-2.0
#include "models/network/block_builder.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/check.h"

namespace tidemark {

bool IsTrainable(std::span<const std::string> globs, std::string_view qualified_name) {
  const std::string name(qualified_name);
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
         });
}

BlockBuilder::BlockBuilder(std::string name, std::span<const std::string> trainable, DType compute)
    : trainable_(trainable), compute_(compute) {
  block_.name = std::move(name);
}

ParameterId BlockBuilder::AddParameter(Parameter parameter) {
  TIDEMARK_CHECK(parameter.rows > 0 && parameter.elements % parameter.rows == 0);
  TIDEMARK_CHECK(parameter.elements % parameter.ShardedRows() == 0);
  parameter.trainable = parameter.trainable && IsTrainable(trainable_, block_.name + "." + parameter.name);
  block_.parameters.push_back(std::move(parameter));
  return ParameterId{static_cast<std::uint32_t>(block_.parameters.size() - 1)};
}

ConstantId BlockBuilder::AddConstant(Constant constant) {
  block_.constants.push_back(std::move(constant));
  return ConstantId{static_cast<std::uint32_t>(block_.constants.size() - 1)};
}

TensorId BlockBuilder::AddTensor(std::string name, std::int64_t elements, Category category,
                                 std::optional<DType> dtype) {
  block_.tensors.push_back(Tensor{std::move(name), category, dtype.value_or(compute_), elements, {}});
  return TensorId{static_cast<std::uint32_t>(block_.tensors.size() - 1)};
}

TensorId BlockBuilder::AddPooled(std::string name, std::int64_t elements, Category category, std::string pool) {
  const TensorId id = AddTensor(std::move(name), elements, category);
  block_.tensors[id.index].pool = std::move(pool);
  return id;
}

Calculate& BlockBuilder::Add(std::vector<Action>& pass, std::string name, const Operator& op, Tensors reads,
                             Tensors writes) {
  Calculate calculate;
  calculate.op = op;
  calculate.name = std::move(name);
  calculate.reads = std::move(reads);
  calculate.writes = std::move(writes);
  return std::get<Calculate>(pass.emplace_back(std::move(calculate)));
}

Calculate& BlockBuilder::AddPointwise(std::vector<Action>& pass, std::string name, Tensors reads, Tensors writes,
                                      std::int64_t flops_per_element) {
  TIDEMARK_CHECK(!reads.empty());
  Pointwise op;
  op.elements = tensor(writes.empty() ? reads.front() : writes.front()).elements;
  op.bytes_moved = BytesOf(reads) + BytesOf(writes);
  op.flops_per_element = flops_per_element;
  return Add(pass, std::move(name), op, std::move(reads), std::move(writes));
}

Calculate& BlockBuilder::AddDropout(std::vector<Action>& pass, std::string name, TensorId read, Tensors writes) {
  Calculate& calculate = AddPointwise(pass, std::move(name), {read}, std::move(writes), 2);
  std::get<Pointwise>(calculate.op).draws = true;
  return calculate;
}

Calculate& BlockBuilder::AddColumnSum(std::vector<Action>& pass, std::string name, Tensors reads, ParameterId sums) {
  Calculate& calculate = AddPointwise(pass, std::move(name), std::move(reads), {});
  auto& op = std::get<Pointwise>(calculate.op);
  op.column_sums = true;
  op.elements = 0;
  for (const TensorId read : calculate.reads) {
    op.elements += tensor(read).elements;
  }
  calculate.gradients = {sums};
  return calculate;
}

Communicate& BlockBuilder::AddCollective(std::vector<Action>& pass, CollectiveKind kind, std::string name,
                                         TensorId from, TensorId to, bool recompute) {
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
  Communicate communicate;
  communicate.kind = kind;
  communicate.reduction = reduces ? Reduction::sum : Reduction::none;
  communicate.name = std::move(name);
  communicate.payload_elements = std::max(tensor(from).elements, tensor(to).elements);
  communicate.dtype = tensor(from).dtype;
  communicate.reads = {from};
  communicate.writes = {to};
  communicate.recompute = recompute;
  return std::get<Communicate>(pass.emplace_back(std::move(communicate)));
}

void BlockBuilder::AddAsynchronous(std::vector<Action>& pass, CollectiveKind kind, const std::string& name,
                                   TensorId from, TensorId to, bool recompute) {
  AddCollective(pass, kind, name, from, to, recompute).asynchronous = true;
}

void BlockBuilder::AddAwait(std::vector<Action>& pass, const std::string& name, TensorId from, TensorId to) {
  pass.emplace_back(Await{name + ".await", {from, to}, {}, Among::tensor_parallel});
}

void BlockBuilder::AddShift(std::vector<Action>& pass, CollectiveKind kind, const std::string& name, Tensors from,
                            Tensors to) {
  Communicate shift;
  shift.kind = kind;
  shift.name = name;
  for (const TensorId id : from) {
    shift.payload_elements += tensor(id).elements;
  }
  shift.dtype = tensor(from.front()).dtype;
  shift.reads = std::move(from);
  shift.writes = std::move(to);
  shift.among = Among::context_parallel;
  shift.asynchronous = true;
  pass.emplace_back(std::move(shift));
}

void BlockBuilder::AwaitShift(std::vector<Action>& pass, const std::string& name, Tensors from, Tensors to) {
  from.insert(from.end(), to.begin(), to.end());
  pass.emplace_back(Await{name + ".await", std::move(from), {}, Among::context_parallel});
}

std::int64_t BlockBuilder::BytesOf(const Tensors& tensors) const {
  Bytes total;
  for (const TensorId id : tensors) {
    total += SizeOf(tensor(id).dtype) * tensor(id).elements;
  }
  return total.count();
}

}  // namespace tidemark
