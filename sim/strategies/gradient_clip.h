// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/lower/role.h"
#include "sim/strategies/update_kernels.h"

namespace tidemark {

/// Whether an optimizer's kernel of this name measures norms to clip by, or scales: what the instant "clip" is of.
bool IsClipKernel(std::string_view name);

/// Scales gradients down to optimizer_step.clip_norm, over the pieces that the optimizer is about to read; does nothing
/// in jobs that do not clip. As torch.nn.utils.clip_grad_norm_ does it: one number per tensor, the norm of these
/// numbers, summed as squares over the groups that gradients are divided among, the coefficient, and all gradients
/// times that, in place. The coefficient stays on the device and is applied whatever it is, so the host waits for
/// nothing.
///
/// Where a system reads the norm on the host, as Megatron does (core/optimizer/clip_grads.py), it multiplies only where
/// the norm is too large: here it always is. Megatron sums over data and model parallel ranks in one all-reduce, which
/// here are one each. The numbers per tensor lie in one buffer.
///
/// A rank that holds several chunks takes one norm of all their gradients: each chunk's are measured before the first
/// is clipped (torch.distributed.pipelining leaves clipping to whoever has all model parts, as torchtitan's train.py
/// does; Megatron-LM makes one optimizer of all model chunks).
///
/// Stages of a pipeline sum the norm as well. A collective does not wait for other stages here, as it does in a real
/// run: the stage that comes to its norm last, which is the first stage of most schedules, is timed exactly.
class GradientClip {
 public:
  /// `gradients`: where they lie. The host measures and scales what lies there, and its numbers are summed over ranks
  /// by collectives of its memory (gloo), priced as those of the device; the host waits for them.
  GradientClip(Role& role, std::int64_t tensors, Place gradients = Place::device);

  /// The numbers of this chunk's gradients, and where it is the rank's last, their sum. `divided`: each data-parallel
  /// rank has a part of the gradients.
  void Measure(const EachPiece& each, bool divided, bool host_reads_norm);
  /// In place of Measure, for gradients that leave the device before the step: makes room, measures each as it goes,
  /// and sums up at the step.
  void BeginParts();
  void MeasurePart(StreamId stream, const BufferRef& gradient, std::int64_t elements);
  void Sum(bool divided, bool host_reads_norm);
  bool measured() const { return measured_; }
  void Scale(const EachPiece& each, StreamId stream);
  /// The last chunk to be clipped ends the norm.
  void Forget();

 private:
  RoleProgram::Norm& norm() { return role_.program.chunks.size() > 1 ? role_.program.norm : own_; }
  const RoleProgram::Norm& norm() const { return role_.program.chunks.size() > 1 ? role_.program.norm : own_; }
  bool clips() const { return norm().numbers.buffer.valid(); }
  void Reduce(const char* group, std::int64_t ranks, std::int64_t stride);
  void TinyKernel(const char* name, const BufferRef& from, const BufferRef& to);

  Role& role_;
  StreamId stream_;        ///< of kernels over gradients and their numbers
  RoleProgram::Norm own_;  ///< of a rank with one chunk
  bool measured_ = false;
};

}  // namespace tidemark
