// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/strategies/gradient_clip.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Trained parameters that lie one behind the other in one tensor, with a master copy and optimizer state of this
/// rank's part of it. DeepSpeed's optimizers update that part as one tensor.
///
/// Ranks cut the tensor into equal parts, so it is padded to a multiple of 2 * ranks elements
/// (deepspeed/runtime/zero/stage_1_and_2.py, bf16_optimizer.py: nccl_start_alignment_factor = 2).
class FlatParameters {
 public:
  enum class Moments : std::uint8_t { with_first_update, before_first_step };

  /// Declares weights, masters and moments. `parts`: among how many ranks masters and moments are divided; with 1
  /// nothing is padded.
  FlatParameters(Role& role, std::int64_t parts, Moments moments);

  BufferRef Weight(const ParameterAt& at) const { return weights_(role_, at); }
  std::int64_t elements() const { return elements_; }
  std::int64_t padded() const { return padded_; }
  std::int64_t part() const { return padded_ / parts_; }
  DType master_type() const { return master_type_; }
  BufferRef master() const { return {master_, {}}; }
  /// A buffer for this rank's part or the whole, alive only where it is allocated; `holds` none: what holds nothing of
  /// the model.
  BufferRef Declare(const char* name, Category category, DType dtype, std::int64_t elements, StreamId stream,
                    std::vector<Holding> holds = {});
  /// This rank's part of the tensor, or all of it.
  std::vector<Holding> Holds(Parts parts, bool masters = false) const;

  /// For gradients that do not stay on the device.
  GradientClip& clip() { return *clip_; }
  /// One update of this rank's part, with gradients clipped where the job says so; in the first step the moments may
  /// appear with it.
  void Update(const BufferRef& gradient);
  /// Writes this rank's part of the weights, cast from the masters; by the host, which copies it to the device, where
  /// the optimizer lies there.
  void CopyToWeights();
  /// Gathers all parts of the weights in place, as one message; nothing where there is one rank.
  void Gather(StreamId stream, GroupId group);

 private:
  std::vector<BufferRef> AllWeights();
  void Clip(const BufferRef& gradient);

  Role& role_;
  std::int64_t parts_, elements_ = 0, padded_ = 0;
  DType master_type_;
  ParameterTable weights_;
  BufferId master_, moments_, padding_;
  BufferRef host_weights_;        ///< this rank's part in the weights' dtype, in host memory; invalid: there is none
  BufferRef root_, denominator_;  ///< of AdamW where its update is not one kernel
  bool moments_exist_;
  std::optional<GradientClip> clip_;
};

/// Of a parameter's gradient; none where it has none.
inline std::int64_t TrainedElements(const Parameter& parameter) { return parameter.trainable ? parameter.elements : 0; }

/// Whole, in the precision of what the optimizer updates.
inline Holding WholeAsMasters() {
  Holding holding;
  holding.masters = true;
  return holding;
}

/// Writes `body(ParameterAt)` for some of DefinitionOrder (that of DeepSpeed's parameter groups) without a gap; whole
/// blocks of one run become a loop. No block may be under construction.
template <class Body>
void EachMember(Role& role, const std::vector<ParameterAt>& members, Body body) {
  for (std::size_t i = 0; i < members.size();) {
    const std::int64_t position = members[i].position;
    const std::size_t run = role.stage.RunOf(position);
    std::vector<ParameterAt> block;
    ForEachTrained(role, position, [&](const ParameterAt& at) { block.push_back(at); });
    const auto whole = static_cast<std::int64_t>((members.size() - i) / block.size());
    const std::int64_t count = std::min(whole, role.stage.first[run] + role.stage.runs[run].count - position);
    if (count < 2 || members[i] != block.front()) {
      body(members[i++]);
      continue;
    }
    const std::size_t start = role.builder.size();
    role.StandAt(position);
    for (const ParameterAt& at : block) {
      body(at);
    }
    role.LeaveBlocks();
    role.builder.Fold(start, {role.block_loop, count, role.InRun(position), 1, 0});
    i += block.size() * static_cast<std::size_t>(count);
  }
}

}  // namespace tidemark
