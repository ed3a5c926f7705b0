// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "profiler/device/lent_rooms.h"
#include "profiler/execute/operation.h"
#include "sim/program/program.h"

namespace tidemark {

/// Whether a collective takes its buffers as one tensor that is divided between the ranks, in place: what they hold is
/// aligned to others. Megatron reduces and gathers a bucket of parameters so, which lie in one buffer there and are
/// buffers of their own here.
bool IsJoint(const Program& program, const Collective& leaf);

/// Where each buffer begins in that tensor, and where the last one ends. In elements: each begins at a multiple of what
/// its holding is aligned to.
struct JointPlaces {
  std::vector<std::int64_t> starts;
  std::int64_t end = 0;
};
JointPlaces PlaceJointly(std::span<const Operand> operands);

/// The tensor itself while it travels. It stands for memory of the communication library, not of the device.
class JointTensor {
 public:
  /// `elements`: with padding, a multiple of `ranks`.
  JointTensor(std::vector<Operand> operands, std::int64_t elements, std::int64_t rank, std::int64_t ranks,
              LentRooms& rooms, std::uint32_t stream);

  /// What the exchange reads and writes: all-gather sends this rank's part of it, reduce-scatter writes that part.
  void Pack(const Queue& queue);
  void* all() const { return all_->data(); }
  void* own() const { return static_cast<std::byte*>(all()) + Offset(rank_ * part_); }
  /// Where reduce-scatter writes to: not the tensor, which others still read.
  kernels::Tensor sum() const { return {{operands_.front().tensor.type.dtype, part_}, sum_->data()}; }
  /// Puts what reduce-scatter has written back into this rank's part of the buffers: the others keep their own.
  void UnpackSum(const Queue& queue);
  void UnpackAll(const Queue& queue);

 private:
  std::ptrdiff_t Offset(std::int64_t elements) const;
  /// Between the buffers and `bytes`, which begins with element `from` of the tensor.
  void Move(const Queue& queue, void* bytes, std::int64_t from, std::int64_t elements, bool out) const;

  std::vector<Operand> operands_;
  JointPlaces places_;
  std::int64_t part_, rank_;
  std::shared_ptr<DeviceRoom> all_, sum_;
};

}  // namespace tidemark
