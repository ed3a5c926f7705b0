// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "kernels/pointwise.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/joint.h"

namespace tidemark {

double Executor::FactorOf(const Collective& leaf, std::int64_t ranks) {
  const double average = leaf.reduction == Reduction::avg ? 1.0 / static_cast<double>(ranks) : 1.0;
  return average * static_cast<double>(leaf.scale.numerator()) / static_cast<double>(leaf.scale.denominator());
}

/// Several buffers as one tensor that is divided between the ranks.
Status Executor::BeginJoint(const Collective& leaf, Communicator& group, const std::vector<Operand>& operands) {
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
  const Nanos start = recorder_.Now();
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket, group.Begin(exchange));
  pending_.push_back({&group,
                      {ticket},
                      leaf.stream,
                      [=] {
                        if (gathers) {
                          tensor->UnpackAll();
                          return;
                        }
                        if (factor != 1.0) {
                          kernels::Scale(factor, tensor->sum());
                        }
                        tensor->UnpackSum();
                      },
                      program_->names[leaf.name.index],
                      start});
  return Done{};
}

}  // namespace tidemark
