// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/joint.h"

#include <algorithm>
#include <utility>

#include "kernels/bytes_cuda.h"

namespace tidemark {

bool IsJoint(const Program& program, const Collective& leaf) {
  const bool divides = leaf.kind == CollectiveKind::reduce_scatter || leaf.kind == CollectiveKind::all_gather;
  if (!divides || leaf.reads.empty() || leaf.reads != leaf.writes) {
    return false;
  }
  const std::vector<Holding>& holds = program.buffers[leaf.reads.front().buffer.index].holds;
  return !holds.empty() && holds.front().aligned > 1;
}

JointPlaces PlaceJointly(std::span<const Operand> operands) {
  JointPlaces places;
  for (const Operand& operand : operands) {
    const std::vector<Holding>& holds = operand.buffer->holds;
    const std::int64_t aligned = holds.empty() ? 1 : holds.front().aligned;
    places.starts.push_back((places.end + aligned - 1) / aligned * aligned);
    places.end = places.starts.back() + operand.tensor.type.elements;
  }
  return places;
}

JointTensor::JointTensor(std::vector<Operand> operands, std::int64_t elements, std::int64_t rank, std::int64_t ranks,
                         LentRooms& rooms, std::uint32_t stream)
    : operands_(std::move(operands)), places_(PlaceJointly(operands_)), part_(elements / ranks), rank_(rank) {
  all_ = rooms.Lend(Bytes(Offset(elements)), stream);
  sum_ = rooms.Lend(Bytes(Offset(part_)), stream);
}

std::ptrdiff_t JointTensor::Offset(std::int64_t elements) const {
  return (SizeOf(operands_.front().tensor.type.dtype) * elements).count();
}

void JointTensor::Move(const Queue& queue, void* bytes, std::int64_t from, std::int64_t elements, bool out) const {
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const std::int64_t start = places_.starts[i], end = start + operands_[i].tensor.type.elements;
    const std::int64_t first = std::max(start, from), last = std::min(end, from + elements);
    if (first < last) {
      std::byte* inside = static_cast<std::byte*>(operands_[i].tensor.data) + Offset(first - start);
      std::byte* outside = static_cast<std::byte*>(bytes) + Offset(first - from);
      MoveBytes(queue, out ? outside : inside, out ? inside : outside, Bytes(Offset(last - first)));
    }
  }
}

void JointTensor::Pack(const Queue& queue) { Move(queue, all(), 0, places_.end, false); }
void JointTensor::UnpackSum(const Queue& queue) { Move(queue, sum_->data(), rank_ * part_, part_, true); }
void JointTensor::UnpackAll(const Queue& queue) { Move(queue, all(), 0, places_.end, true); }

}  // namespace tidemark
