// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/lower/data_parallel.h"
#include "sim/lower/lifetime.h"
#include "sim/lower/replicated_gradients.h"
#include "sim/lower/role.h"
#include "sim/lower/split_backward.h"
#include "sim/lower/tensor_pool.h"

namespace tidemark {

/// Writes the actions of blocks: allocations, kernels, tensor-parallel collectives, frees. Calls the data-parallel
/// hooks for weights and gradients.
class BlockWriter {
 public:
  BlockWriter(Role& role, DataParallel& data_parallel);

  /// What a forward pass leaves behind.
  enum class Forwards : std::uint8_t {
    saving,        ///< what the backward pass reads
    representing,  ///< nothing (no_grad): only what blocks hand on
    again,         ///< as saving; it is the second time
  };

  /// Copies ids and labels of some runs' blocks to the device; with `buffers.attention_mask` also that mask, on the
  /// network's first and last stage (pretrain_gpt.py: get_batch), where ranks that share sequences cut out their rows
  /// (core/utils.py: get_batch_on_this_cp_rank). No kernel of attention reads it: that is causal by itself.
  /// The function that computes the loss names it until it returns, and layers that are computed again were called
  /// with it and keep it till then (core/tensor_parallel/random.py: CheckpointFunction): here until the stage's first
  /// layer has been, whichever of them are.
  void Load(const Microbatch& microbatch, const RunRange& runs);
  void Forward(const Microbatch& microbatch, std::int64_t position, Forwards kind = Forwards::saving);
  /// Which gradients a backward pass makes.
  enum class Backwards : std::uint8_t {
    all,
    of_inputs,   ///< and those of weights that cannot wait
    of_weights,  ///< those that have waited
  };
  void Backward(const Microbatch& microbatch, std::int64_t position, Backwards kind = Backwards::all);

  /// The residual stream between position - 1 and `position`, and its gradient; at either end of the stage it comes
  /// from or goes to a neighbour.
  BufferRef Boundary(const Microbatch& microbatch, std::int64_t position) const;
  BufferRef BoundaryGradient(const Microbatch& microbatch, std::int64_t position) const;

  /// A tensor that blocks share without being neighbours.
  BufferRef Carried(const Microbatch& microbatch, const std::string& name) const;

  /// What is under way between two microbatches; before the block at `position`, also in what it differs from others.
  std::int64_t Key() const { return pool_.Key(); }
  std::vector<std::int64_t> Key(std::int64_t position) const;

 private:
  struct BoundaryRun {
    std::int64_t base = 0, end = 0;  ///< positions [base, end)
    BufferId value, gradient;
    bool pooled = false;  ///< the value is a view of the pool
  };
  /// What surrounds one action, the same for every block of a run: worked out once.
  struct ActionPlan {
    std::vector<TensorId> births, deaths;  ///< allocated before it, freed after it, by this block
    std::vector<TensorId> pooled{};        ///< that it touches
    NameId name;
  };
  struct BlockTables {
    std::vector<ActionPlan> plans;         ///< of forward, then backward actions
    std::vector<ActionPlan> representing;  ///< of forward actions, where there is such a pass
    SplitBlock split;                      ///< where backward passes come in two parts
    std::vector<ActionPlan> split_plans;
    bool reads_output_gradient = false;
  };
  struct RunTables {
    std::vector<BufferId> tensors;    ///< of all of the run's blocks; invalid for boundaries
    std::vector<BufferId> constants;  ///< the same, of each block one
    BlockTables usual, turn;          ///< turn: of the blocks that Stage::turns sets apart, where there are any
  };

  void DeclareTensors(std::size_t run);
  BlockTables Tabulate(const Block& block, bool first_of_network);
  const BlockTables& TablesAt(std::int64_t position) const;
  std::vector<ActionPlan> PlanActions(const Block& block, bool first_of_network);
  std::vector<ActionPlan> PlanRepresenting(Block block, bool first_of_network);
  void DeclareBoundaries();
  BufferId DeclareCarried(const Tensor& tensor);
  void DeclareMask();
  void FreeMask(const Microbatch& microbatch);
  bool InputIsPooled(std::int64_t position) const;
  const BoundaryRun& BoundaryRunOf(std::int64_t position) const;
  Index MicrobatchIndex(const Microbatch& microbatch) const;

  /// False for what a neighbour allocates or frees.
  bool BornHere(const Block& block, TensorId tensor) const;
  bool DiesHere(const Block& block, bool first_of_network, TensorId tensor) const;

  /// The block at a position as the pass under way walks it, for one microbatch.
  struct Walked {
    const Microbatch& microbatch;
    std::int64_t position;
    const Block& block;
    const std::vector<ActionPlan>& plans;
    std::vector<BufferRef> tensors;  ///< by TensorId

    std::vector<BufferRef> Refs(const std::vector<TensorId>& ids) const;
  };
  Walked Walk(const Microbatch& microbatch, std::int64_t position) const;
  /// Actions [begin, end) of a pass, the first of which is the block's action number `base`, with its loops.
  void ActAll(const Walked& walked, const std::vector<ActionLoop>& loops, std::size_t base, std::size_t begin,
              std::size_t end);
  void Act(const Walked& walked, std::size_t action);
  void Act(const Walked& walked, NameId name, const Calculate& action);
  void Act(const Walked& walked, NameId name, const Communicate& action);
  void Act(const Walked& walked, NameId name, const Await& action);
  void Act(const Walked&, NameId, const Hold&) {}  // what is born or dies with it is all
  struct MadeGradient {
    ParameterAt at;
    BufferRef gradient;
  };
  /// Appends to what a kernel reads and writes the buffers of those of these gradients that somebody asks for, which
  /// `op` adds to where it does not begin them; and them to `made_`.
  void WriteGradients(const Walked& walked, const std::vector<ParameterId>& gradients, Operator& op,
                      std::vector<BufferRef>& reads, std::vector<BufferRef>& writes);
  BufferRef BeginGradient(const Microbatch& microbatch, const ParameterAt& at);
  void EndGradient(const Microbatch& microbatch, const MadeGradient& made);

  Role& role_;
  DataParallel& data_parallel_;
  const bool sums_in_backward_;  ///< gradients of own rows or heads, as soon as they are made
  /// Collectives among the ranks of one group.
  struct Way {
    StreamId stream;
    GroupId group;
    const char *ready, *done;
  };
  const Way& WayAmong(Among among);

  StreamId copy_;
  Way tp_{{}, {}, "tp ready", "tp done"}, cp_{{}, {}, "cp ready", "cp done"};
  /// Made at their first use; the first is over data.
  Way loss_{{}, {}, "representations ready", "representations gathered"};
  Way ep_{{}, {}, "ep ready", "ep done"}, etp_{{}, {}, "etp ready", "etp done"};
  Way all_experts_{{}, {}, "experts ready", "experts done"};
  std::map<std::string, BufferId> carried_;
  BufferId mask_;        ///< invalid where none is loaded
  BufferId whole_mask_;  ///< of which a context-parallel rank keeps its rows alone; invalid where it has all
  bool keeps_mask_ = false;
  std::vector<RunTables> runs_;
  std::vector<BoundaryRun> boundaries_;
  TensorPool pool_;
  Forwards kind_ = Forwards::saving;  ///< of the pass under way
  bool split_ = false;                ///< it is one part of a backward pass
  bool in_flight_ = false;            ///< a collective that nothing has waited for
  /// Gradients made meanwhile. Autograd's hooks run when the function that issued the collective returns: it waits
  /// first.
  std::vector<MadeGradient> unfinished_;
  std::vector<MadeGradient> made_;  ///< by the kernel that is being written
  /// Of which parts have been made, while more are to come.
  std::optional<BufferRef> partial_gradient_;
  std::optional<LoopId> action_loop_;       ///< made at its first use
  Rational loss_scale_{1};                  ///< of the next kernel
  bool tied_ = false;                       ///< the head of this stage reads the embedding of this stage
  BufferId tied_contribution_;              ///< the embedding's own gradient, before it is added to the head's
  std::optional<BufferRef> tied_gradient_;  ///< the sum, while the backward pass is between head and embedding
};

}  // namespace tidemark
