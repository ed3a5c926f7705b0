// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "kernels/pointwise.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/joint.h"

namespace tidemark {

/// Several buffers as one tensor that is divided between the ranks.
Status Executor::BeginJoint(const Collective& leaf, const std::vector<Operand>& operands, Pending& pending) {
  const Communicator& group = *pending.group;
  const HeapScope scope(HeapOwner::communication);
  const auto tensor = std::make_shared<JointTensor>(operands, leaf.payload_elements, group.rank(), group.size());
  tensor->Pack();
  const bool gathers = leaf.kind == CollectiveKind::all_gather;
  const Exchange exchange{leaf.kind,
                          leaf.reduction,
                          operands.front().tensor.type.dtype,
                          leaf.payload_elements,
                          gathers ? tensor->own() : tensor->all(),
                          gathers ? tensor->all() : tensor->sum().data};
  const double factor = FactorOf(leaf, group.size());
  return Issue(pending, exchange, [=] {
    if (gathers) {
      tensor->UnpackAll();
      return;
    }
    if (factor != 1.0) {
      kernels::Scale(factor, tensor->sum());
    }
    tensor->UnpackSum();
  });
}

}  // namespace tidemark
