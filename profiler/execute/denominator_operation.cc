// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/optimizer_cuda.h"
#include "profiler/execute/operation.h"
#include "sim/program/stages.h"

namespace tidemark {
namespace {

using Writes = std::span<const kernels::Tensor>;

kernels::AdamW AdamWOf(const OperationContext& c) {
  kernels::AdamW op;
  op.step = c.update;
  return op;
}

/// 3 of "root 3 for moments of layer", the root of one tensor; nothing: of all that the moments are for.
std::optional<std::size_t> TensorIn(std::string_view name) {
  const std::string_view number = name.substr(name.find(' ') + 1);
  std::size_t tensor = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), tensor);
  return error == std::errc() ? std::optional(tensor) : std::nullopt;
}

/// One tensor of the optimizer, with its padding, by itself. Offsets begin anew; `begin` says where it lies. No
/// elements: there is none of this number.
Contents OnlyTensor(const Contents& all, std::size_t wanted) {
  Contents only;
  std::size_t tensors = 0;
  std::int64_t end = all.elements;
  for (const Stretch& stretch : all.stretches) {
    tensors += stretch.joined ? 0 : 1;
    if (tensors == wanted + 2) {
      end = stretch.offset;
      break;
    }
    if (tensors == wanted + 1) {
      only.begin = only.stretches.empty() ? stretch.offset : only.begin;
      only.stretches.push_back(stretch);
      only.stretches.back().offset -= only.begin;
    }
  }
  only.elements = only.stretches.empty() ? 0 : end - only.begin;
  return only;
}

/// A new tensor like the second moments, which lie behind the first.
Result<Operation> TakeRoot(const OperationContext& c) {
  const Operand& state = c.reads[0];
  TIDEMARK_ASSIGN(const auto all, KnownContents(c, state));
  const auto tensor = TensorIn(WithoutStage(c.writes[0].buffer->name));
  auto root = std::make_shared<Contents>(tensor ? OnlyTensor(*all, *tensor) : *all);
  const std::int64_t begin = all->elements + std::exchange(root->begin, 0);
  Operation operation;
  operation.outputs = {{state.tensor.type.dtype, root->elements}};
  operation.run = [second = kernels::Slice(c.Read(0), begin, root->elements)](Writes writes, const Queue& queue) {
    on::AdamWRoot(queue, second, writes[0]);
  };
  operation.packed = std::move(root);
  return operation;
}

}  // namespace

std::optional<Result<Operation>> BindDenominator(const OperationContext& c) {
  if (c.name == "root of second moments") {
    return TakeRoot(c);
  }
  if (c.name == "correct bias") {
    return Operation{{c.Read(0).type},
                     [op = AdamWOf(c), root = c.Read(0)](Writes writes, const Queue& queue) {
                       on::AdamWCorrectBias(queue, op, root, writes[0]);
                     },
                     c.reads[0].packed};
  }
  if (c.name == "add epsilon") {
    return Operation{{c.Read(0).type}, [op = AdamWOf(c)](Writes writes, const Queue& queue) {
                       on::AdamWAddEpsilon(queue, op, writes[0]);
                     }};
  }
  return std::nullopt;
}

}  // namespace tidemark
