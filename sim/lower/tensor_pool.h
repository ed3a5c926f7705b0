// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/lower/role.h"
#include "sim/lower/wrong_numbers.h"

namespace tidemark {

/// The block that all pooled tensors of a rank are views of, as nanotron's MemoryBuffer and Megatron's global buffer:
/// made at the first request of the first step, as large as that request; replaced by a larger one when more is asked
/// for; never given back. The replaced block lives on while a tensor in it does.
///
/// Where requests differ in size, smaller ones come first only for what the stage's first block makes: its first pooled
/// tensor of the first microbatch of the first step lies in a small block of its own, and has a view of its own. With
/// the next one the pool is made as large as it will be, be that one as small.
class TensorPool {
 public:
  /// Where the first pooled tensor of the first block's forward pass is, and what it is.
  struct First {
    TensorId tensor;            ///< invalid: there is none
    bool leaves_block = false;  ///< it is the block's output, which the backward pass still needs
  };

  explicit TensorPool(Role& role);

  /// A family of views.
  BufferId AddView(std::string name, const Tensor& tensor, std::int64_t microbatches, std::int64_t blocks);

  /// A microbatch's forward or backward pass begins. Backward passes come in the order of the forward passes.
  void BeginForward() { in_small_ = small_.valid() && !pool_.exists; }
  void BeginBackward() { in_small_ = small_alive_; }
  /// An operator is about to touch a pooled tensor.
  void Request(const BufferRef& pooled);
  /// The first block's output has been read for the last time.
  void DropOutput();

  /// Whether `tensor` of the block at `position` is in the small block during this pass.
  bool InSmall(std::int64_t position, TensorId tensor) const {
    return in_small_ && position == 0 && tensor == first_.tensor;
  }
  /// Whether what the first block hands on is.
  bool OutputInSmall() const { return in_small_ && first_.leaves_block; }
  BufferRef small_view() const { return {small_view_, {}}; }

  /// What is remembered between two blocks or microbatches.
  std::int64_t Key() const { return (pool_.exists ? 1 : 0) + (small_alive_ ? 2 : 0); }

 private:
  Role& role_;
  RoleProgram::Shared& pool_;
  BufferId small_, small_view_;
  First first_;
  bool small_alive_ = false, in_small_ = false;
};

/// Why a job's pooled tensors are read after they were overwritten; nothing where they are not.
std::optional<WrongNumbers> WhatIsWrongWithPool(const Job& job);

}  // namespace tidemark
