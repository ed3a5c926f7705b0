// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/id.h"
#include "models/network/operator.h"

namespace tidemark {

// A network, as one tensor-parallel rank sees it: a sequence of blocks (embedding, decoder layers, head), each a
// table of parameters, tensors, and the actions of its forward and backward pass. The table says which action reads
// and writes which tensor; when a tensor is born and dies follows from that (sim/lower): born at the first action that
// writes it, dead after the last that touches it. A tensor that a backward action reads is thereby "saved".

using TensorId = Id<struct BlockTensorTag>;   ///< index into Block::tensors
using ParameterId = Id<struct ParameterTag>;  ///< index into Block::parameters
using ConstantId = Id<struct ConstantTag>;    ///< index into Block::constants

struct Parameter {
  std::string name;                ///< within the block: "wq", "norm1"
  std::int64_t elements = 0;       ///< on this tensor-parallel rank
  std::int64_t rows = 1;           ///< of the matrix on this rank, or of all experts' matrices; divides `elements`
  std::int64_t sharded_rows = 0;   ///< size of the dimension that FSDP2 shards and pads; 0: it is `rows`
  std::int64_t elements_full = 0;  ///< over all tensor-parallel and expert-parallel ranks
  bool trainable = true;
  bool tied = false;             ///< a second use of a parameter defined in another block: not stored again
  bool added_by_hook = false;    ///< its gradient is always autograd's own, which no kernel adds to another
  bool shared_by_heads = false;  ///< each tensor-parallel rank has all of it, and of its gradient what its heads make
  bool summed_wide = false;      ///< its gradient is a sum of parts, of more bytes an element than other gradients
  std::int64_t experts = 0;      ///< weights of one shape that it is made of, one for each expert; 0: it is no expert's

  std::int64_t ShardedRows() const { return sharded_rows > 0 ? sharded_rows : rows; }
};

struct Tensor {
  std::string name;  ///< within the block: "qkv_in", "rstd1"
  Category category = Category::activation;
  DType dtype = DType::bf16;
  std::int64_t elements = 0;  ///< on this rank, for one microbatch
  std::string pool;           ///< not empty: a view of the block of this name, which is never given back
  /// A tensor that blocks share which are no neighbours: all that carry it name it alike. It is born in one of them and
  /// dies in one of them, or outside of all blocks.
  struct Carried {
    bool yes = false, born_elsewhere = false, dies_elsewhere = false;
  } carried = {};
};

/// Numbers that a block always has and nobody changes (a module's buffer), all of them on each rank.
struct Constant {
  std::string name;  ///< within the block: "rotary_table"
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
};

enum class Reduction : std::uint8_t { none, sum, avg, max };

/// A shift hands each rank's buffers to the rank above or below it in the group, and at the group's end to the first.
enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  reduce,
  shift_up,
  shift_down,
};

inline bool IsShift(CollectiveKind kind) {
  return kind == CollectiveKind::shift_up || kind == CollectiveKind::shift_down;
}

/// Which of its groups a rank's block communicates with: those with the other parts of the same layer, with the other
/// parts of the same sequences, with other samples, with other experts of the layer, with the other parts of the same
/// experts, or with both.
enum class Among : std::uint8_t {
  tensor_parallel,
  context_parallel,
  data_parallel,
  expert_parallel,
  expert_tensor_parallel,
  all_experts
};

/// An operator of the block, on the compute stream.
struct Calculate {
  Operator op;
  std::string name;  ///< "wq.forward", "norm1.backward"
  std::vector<TensorId> reads, writes;
  std::vector<ParameterId> parameters;  ///< weights it reads
  std::vector<ParameterId> gradients;   ///< weight gradients it produces
  /// Weight gradients it makes a part of, as the first to do so or by adding to what there is. An action behind it adds
  /// the last part: that one has them among its `gradients`.
  std::vector<ParameterId> partial_gradients = {};
  bool recompute = false;  ///< forward work done a second time
  /// Of a loss in the midst of the network, on this block's own labels. In the forward pass: not run where only what
  /// blocks hand on is wanted. In the backward pass: begins with that loss's gradient.
  bool own_loss = false;
  bool own_heads = false;  ///< the weight gradients that it makes are of this rank's heads (Parameter::shared_by_heads)
  std::vector<ConstantId> constants = {};  ///< that it reads
};

/// A collective within a block.
struct Communicate {
  CollectiveKind kind = CollectiveKind::all_gather;
  Reduction reduction = Reduction::none;
  std::string name;
  std::int64_t payload_elements = 0;  ///< of the full (gathered) buffer
  DType dtype = DType::bf16;
  std::vector<TensorId> reads, writes;
  bool recompute = false;
  Among among = Among::tensor_parallel;
  bool asynchronous = false;  ///< what follows runs beside it, up to its Await
};

/// The compute stream waits for the collectives issued so far among these ranks. They keep their tensors until here.
struct Await {
  std::string name;
  std::vector<TensorId> reads, writes;
  Among among = Among::tensor_parallel;
};

/// What code holds without touching it: `writes` are allocated already, `reads` are still named.
struct Hold {
  std::string name;
  std::vector<TensorId> reads, writes;
};

using Action = std::variant<Calculate, Communicate, Await, Hold>;

/// A stretch of a layer's forward pass, actions [begin, end), that may be done again by itself.
struct LayerPart {
  enum class Kind : std::uint8_t {
    norm,          ///< in front of linear layers
    attention,     ///< scores and what becomes of them: from queries, keys and values to their output
    feed_forward,  ///< from the second norm's output to the down projection's
    activation,    ///< between the projections up and down
    latent_heads,  ///< from a latent vector's norm to queries, or to keys and values
  } kind = Kind::norm;
  std::size_t begin = 0, end = 0;
};

/// Actions [begin, end) of a pass, `count` times in a row. What is born in them dies in them.
struct ActionLoop {
  std::size_t begin = 0, end = 0;
  std::int64_t count = 1;
};

/// How often a pass with these loops runs its action number `action`.
inline std::int64_t TimesRun(const std::vector<ActionLoop>& loops, std::size_t action) {
  for (const ActionLoop& loop : loops) {
    if (loop.begin <= action && action < loop.end) {
      return loop.count;
    }
  }
  return 1;
}

/// `input` and `output` carry the residual stream from block to block, `output_gradient` and `input_gradient` back.
/// The output of one block *is* the input of the next: `output` has the shape of the next block's `input`, is born
/// in this block's forward and belongs to the next block (its last reader). The first block has no input or
/// input gradient, the last no output or output gradient (invalid ids).
struct Block {
  std::string name;                   ///< "embedding", "layer", "head"
  std::vector<Parameter> parameters;  ///< in definition order
  std::vector<Constant> constants = {};
  std::vector<Tensor> tensors;
  std::vector<Action> forward, backward;
  std::vector<ActionLoop> forward_loops = {}, backward_loops = {};  ///< in order
  std::size_t chunks_end = 0;  ///< backward actions, from the first on, of a loss in chunks that calls the head itself
  TensorId input, output, output_gradient, input_gradient;
  std::vector<TensorId> loaded;  ///< tensors copied to the device before the microbatch: ids, labels
  std::int64_t tower = -1;       ///< of a dual encoder: 0 or 1; -1: of no tower
  std::vector<LayerPart> parts;  ///< of a transformer layer; no other block has any
};

/// "first." of a block "first.layer"; empty for a block of no tower.
inline std::string TowerPrefix(const Block& block) {
  return block.tower < 0 ? std::string() : block.name.substr(0, block.name.find('.') + 1);
}

/// `count` equal blocks in a row.
struct BlockRun {
  Block block;
  std::int64_t count = 1;
};

/// What decides a rank's table besides the network itself.
struct Partition {
  std::int64_t micro_batch_size = 1;  ///< sequences
  std::int64_t sequence_length = 1;   ///< tokens that this rank has of each sequence
  std::int64_t cp = 1;                ///< ranks that share each sequence, as many tokens on each
  std::int64_t tp = 1;
  std::int64_t ep = 1;             ///< ranks that have different experts of each layer
  std::int64_t etp = 1;            ///< ranks that have parts of the same experts
  bool sequence_parallel = false;  ///< norms and residual stream sharded over the tp group
  /// Where the gathered rows of a tensor-parallel input lie, where the residual stream is scattered, and how long.
  enum class Gathered : std::uint8_t {
    kept,          ///< in a tensor of their own, until the backward pass has read it
    again,         ///< in a tensor of their own for one pass: the backward pass gathers them again
    again_pooled,  ///< in a view of one pooled block for one pass: the backward pass gathers them again
    pool_unsafe,   ///< results of all gathers and scatters are views of one pooled block, and kept as if they were not
  } gathered = Gathered::kept;
  /// In what order linear layers multiply and communicate, and what thereby runs beside a collective.
  enum class LinearOrder : std::uint8_t {
    /// Backward: weight gradient before input gradient. Every collective is waited for at once: nothing runs beside it.
    weight_gradient_first,
    /// Backward: input gradient first, beside the second gather; its reduction runs beside the weight gradient.
    input_gradient_first,
    /// As input_gradient_first; moreover all other gathers run beside the product with the rows this rank has.
    own_rows_first,
  } linear_order = LinearOrder::weight_gradient_first;
  enum class Loss : std::uint8_t {
    upcast_logits,         ///< F.cross_entropy on logits cast to fp32
    upcast_returned,       ///< the same in a model that returns its logits: the caller holds them
    upcast_fp32_returned,  ///< the same, returned after the cast
    low_precision,         ///< F.cross_entropy on the logits as they are
    softmax_saving,        ///< nanotron's, its gradient taken in place
    softmax_in_place,      ///< Megatron's: the softmax, too, is taken in place
    chunked,               ///< forward and backward of the head for some tokens at a time, upcast logits each
    fused,                 ///< one kernel for some tokens at a time, which turns their logits into their gradient
  } loss = Loss::upcast_logits;
  std::int64_t loss_chunk_tokens = 0;  ///< of chunked and fused losses; 0: as many as the real code takes
  /// Tokens of the sequence that memory is for, where this table is for another length: a loss takes as many chunks of
  /// either. 0: this one.
  std::int64_t longest_sequence = 0;
  bool fused_glu = true;
  bool fused_rope = true;  ///< queries and keys are rotated where they are; else each into a new tensor
  bool packed_qkv = false, packed_gate_up = false;
  bool latent_value_views = true;  ///< values of multi-latent attention are a view of what makes them and keys
  DType compute = DType::bf16;     ///< activations and the weights as computed with
  DType gradients = DType::bf16;   ///< of weights, as the backward pass writes them
  std::optional<DType> chunk_sum;  ///< of the head's weight, where a loss in chunks adds up its parts in another one
  std::int64_t ranks = 1;          ///< data-parallel ranks, whose representations a contrastive loss compares
  std::int64_t cached_batch = 0;  ///< samples of a contrastive loss whose representations are cached; 0: a microbatch's
};

}  // namespace tidemark
