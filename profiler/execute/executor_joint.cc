// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "kernels/pointwise.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/joint.h"

namespace tidemark {

/// Several buffers as one tensor that is divided between the ranks.
Status Executor::BeginJoint(const Collective& leaf, std::span<const Operand> operands, Pending& pending) {
  const Communicator& group = *pending.group;
  const HeapScope scope(HeapOwner::communication);
  const std::uint32_t stream = pending.stream.index;
  const auto tensor = std::make_shared<JointTensor>(std::vector(operands.begin(), operands.end()),
                                                    leaf.payload_elements, group.rank(), group.size(), rooms_, stream);
  device_.Give(stream, [tensor](const Queue& queue) { tensor->Pack(queue); });
  const bool gathers = leaf.kind == CollectiveKind::all_gather;
  const Exchange exchange{leaf.kind,
                          leaf.reduction,
                          operands.front().tensor.type.dtype,
                          leaf.payload_elements,
                          gathers ? tensor->own() : tensor->all(),
                          gathers ? tensor->all() : tensor->sum().data};
  const double factor = FactorOf(leaf, group.size());
  return Issue(pending, exchange, [=, this] {
    device_.Give(stream, [=](const Queue& queue) {
      if (gathers) {
        tensor->UnpackAll(queue);
        return;
      }
      if (factor != 1.0) {
        on::Scale(queue, factor, tensor->sum());
      }
      tensor->UnpackSum(queue);
    });
  });
}

}  // namespace tidemark
