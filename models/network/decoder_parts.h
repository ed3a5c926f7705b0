// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/network/block_builder.h"
#include "models/network/network.h"

namespace tidemark {

/// Sizes on one tensor-parallel rank, for one microbatch.
struct LocalShape {
  LocalShape(const Decoder& decoder, const Partition& partition);

  std::int64_t tp = 1, batch = 0, sequence = 0;
  bool scattered = false;  ///< sequence parallelism: the residual stream holds tokens / tp rows
  std::int64_t tokens = 0, residual_tokens = 0;
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_size = 0, value_head_size = 0, vocabulary = 0;

  std::int64_t query_width() const { return heads * head_size; }
  std::int64_t key_width() const { return kv_heads * head_size; }
  std::int64_t value_width() const { return kv_heads * value_head_size; }
  std::int64_t output_width() const { return heads * value_head_size; }  ///< of attention
};

/// What a norm takes one statistic of each of: `rows` of `width`.
struct NormShape {
  std::int64_t rows = 0, width = 0;
};

struct NormPart {
  std::string name;
  NormShape shape;
  ParameterId weight, bias;
  TensorId input, output, rstd, mean;
  TensorId normalised, wide_weight;  ///< of an eager norm
};

/// A linear layer; `in` and `out` are its features on this rank.
struct LinearPart {
  std::string name;
  ParameterId weight, bias;
  std::int64_t in = 0, out = 0;
  std::vector<TensorId> outputs;  ///< several where one packed GEMM makes them
  /// Where something turns the outputs (normalises or rotates them) before others read them: adds its backward pass,
  /// from gradients of what those read to gradients of the outputs.
  std::function<std::vector<TensorId>(std::vector<TensorId>)> turn_back;
};

/// Linears that share one input; their outputs are divided over the tensor-parallel group.
struct ColumnPart {
  NormPart norm;  ///< in front of it; none where it is the residual stream itself
  TensorId rows;  ///< of the residual stream, or of what is made of them
  std::int64_t width = 0;
  std::string rows_gradient_name, input_name;
  TensorId input;             ///< what the GEMMs read: these rows, or all that they are gathered into
  bool gather_again = false;  ///< the backward pass repeats the gather
  bool in_flight = false;     ///< the gather has been issued, and nothing has waited for it
  std::vector<LinearPart> linears;
};

/// A linear whose input is divided over the group: its output is a partial sum, reduced or scattered to the residual
/// stream's rows.
struct RowPart {
  LinearPart linear;
  TensorId input;
};

/// A linear that every rank of the group has all of, for its rows of the residual stream or of what is made of them.
struct ReplicatedPart {
  LinearPart linear;
  TensorId input;
};

/// The pieces decoder blocks are made of. Each has a forward half, which adds parameters, tensors and actions, and a
/// backward half, which takes the part and the gradient of its output and returns that of its input.
///
/// Tensor-parallel communication (Korthikanti et al., Reducing Activation Recomputation, 2022, figures 4-6):
///                     forward                        backward
///   column, scattered   all-gather X                   all-gather X again (Gathered::again*), reduce-scatter dX
///   column, else        -                              all-reduce dX
///   row, scattered      reduce-scatter Y               all-gather dY
///   row, else           all-reduce Y                   -
/// With tp = 1 there is none. Partition::LinearOrder says what runs beside it:
///
///   weight_gradient_first   Nothing: dW, dX, its reduction, one after the other.
///
///   input_gradient_first    X is gathered again beside dX, and dX reduced beside dW; a row's products have nothing
///                           beside them (Megatron-LM's LinearWithGradAccumulationAndAsyncCommunication).
///
///   own_rows_first          So too; moreover X in the forward pass and dY are gathered beside the product with the own
///                           rows (nanotron's tp_linear_async_communication).
class DecoderParts {
 public:
  DecoderParts(std::string block_name, const Decoder& decoder, std::span<const std::string> trainable,
               const Partition& partition);

  const Decoder& decoder() const { return decoder_; }
  const Partition& partition() const { return partition_; }
  const LocalShape& shape() const { return shape_; }
  BlockBuilder& builder() { return builder_; }

  TensorId AddResidual(std::string name);  ///< [rows of the residual stream, hidden]
  ParameterId AddReplicated(std::string name, std::int64_t elements);
  ParameterId AddReplicatedMatrix(std::string name, std::int64_t rows, std::int64_t columns);
  /// A linear whose dimension 0 is divided over the group; `full` is its undivided size.
  LinearPart AddColumnLinear(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t full, bool bias);
  TensorId AddRows(std::string name, std::int64_t width);  ///< as many as the residual stream has
  /// What rows are gathered into that are gathered again, or nobody reads later: a view of the pool, where there is
  /// one.
  TensorId AddPassing(std::string name, std::int64_t elements);

  /// Of the residual stream's rows, or of as many of another width.
  NormPart NormForward(const std::string& name, TensorId input, std::string output_name);
  NormPart NormForward(const std::string& name, std::int64_t width, TensorId input, std::string output_name);
  /// Of queries or keys: of each of `heads` heads of each token, whose weights they share, or of all of a token's.
  NormPart QkNormForward(const std::string& name, std::int64_t heads, TensorId input, TensorId output);
  TensorId NormBackward(const NormPart& part, TensorId output_gradient, std::string input_gradient_name);

  /// Norm of rows of `width` and, where they are scattered, gather. The linears follow, each with its outputs.
  ColumnPart ColumnInput(const std::string& norm_name, std::int64_t width, TensorId input,
                         const std::string& input_name);
  /// The same over a norm that others read as well, and over the residual stream itself.
  ColumnPart ColumnOver(NormPart norm, const std::string& input_name);
  ColumnPart ColumnOverResidual(TensorId rows, std::string rows_gradient_name, const std::string& input_name);
  void ColumnForward(ColumnPart& part, LinearPart linear);
  /// `gradients` holds, linear by linear, the gradients of its outputs. Returns that of the part's rows.
  TensorId ColumnBackward(const ColumnPart& part, std::vector<std::vector<TensorId>> gradients);

  /// The last part of ColumnBackward by itself: sums an input gradient over the group, down to the own rows where they
  /// are scattered. Nothing runs beside it.
  TensorId ReduceColumnGradient(const ColumnPart& part, TensorId partial);
  Gemm MakeGemm(std::int64_t m, std::int64_t n, std::int64_t k) const;

  /// Returns the sum, of the residual stream's rows.
  TensorId RowForward(RowPart& part, const std::string& name, TensorId input, std::int64_t in, std::int64_t full_in,
                      bool bias);
  TensorId RowBackward(const RowPart& part, TensorId output_gradient, std::string input_gradient_name);

  ReplicatedPart ReplicatedForward(const std::string& name, TensorId input, std::int64_t in,
                                   std::vector<TensorId> outputs);
  /// `gradients`: of its outputs.
  TensorId ReplicatedBackward(const ReplicatedPart& part, const std::vector<TensorId>& gradients,
                              std::string input_gradient_name);

  /// All rows of what each rank has its own rows of, and from its gradient, of which each has a part, that of the own
  /// ones: the tensor itself where rows are not scattered.
  TensorId GatherForward(const std::string& name, TensorId rows);
  TensorId ReduceBackward(const std::string& name, TensorId partial);

  /// Sums partial rows over the group and leaves the residual stream's share; the tensor itself with tp = 1.
  TensorId ReduceForward(const std::string& name, TensorId partial);
  /// All rows of a gradient of the residual stream; the tensor itself where its rows are not scattered.
  TensorId GatherBackward(const std::string& name, TensorId gradient);

  /// With dropout: adds the mask and returns the dropped copy. Without: the tensor itself.
  TensorId DropoutForward(const std::string& name, TensorId input, TensorId& mask);
  TensorId DropoutBackward(const std::string& name, TensorId gradient, TensorId mask);

 private:
  using Gathered = Partition::Gathered;
  using LinearOrder = Partition::LinearOrder;

  bool GathersBesideOwnRows() const {
    return shape_.scattered && partition_.linear_order == LinearOrder::own_rows_first;
  }
  bool GathersAgain() const {
    return partition_.gathered == Gathered::again_pooled || partition_.gathered == Gathered::again;
  }
  bool InputGradientFirst() const { return partition_.linear_order != LinearOrder::weight_gradient_first; }
  ColumnPart GatherRows(ColumnPart part);
  /// The forward half of a norm whose input, output and weight there are.
  NormPart NormRows(NormPart part);
  /// The result of a collective.
  TensorId AddCollected(std::string name, std::int64_t elements, Category category);
  TensorId AddGathered(const ColumnPart& part, bool again);
  TensorId ColumnInputGradient(const ColumnPart& part, std::vector<std::vector<TensorId>>& gradients,
                               const std::optional<TensorId>& weights_input);
  /// As ReduceColumnGradient, but with InputGradientFirst the result must be awaited.
  TensorId ReduceInputGradient(const ColumnPart& part, TensorId partial);
  void AwaitInputGradient(const ColumnPart& part, TensorId partial, TensorId reduced);
  /// Partial rows summed over the group, down to the own ones in a tensor of this name where rows are scattered; with
  /// tp = 1 the tensor itself. The collective is called "<name>.reduce<suffix>" or "<name>.scatter<suffix>".
  TensorId SumOverRanks(std::vector<Action>& pass, bool asynchronous, const std::string& name,
                        const std::string& suffix, TensorId partial, std::string scattered_name);
  /// A collective that is waited for at once, or with `asynchronous` not.
  void AddCollective(std::vector<Action>& pass, bool asynchronous, CollectiveKind kind, const std::string& name,
                     TensorId from, TensorId to, bool recompute = false);
  void BiasGradient(const LinearPart& linear, const std::vector<TensorId>& gradients);
  /// Sums over `rows` rows.
  void WeightGradient(const LinearPart& linear, TensorId input, const std::vector<TensorId>& gradients,
                      std::int64_t rows);
  /// Both of one linear, in the order of InputGradientFirst, with nothing beside them.
  TensorId BothGradients(const LinearPart& linear, TensorId input, const std::vector<TensorId>& gradients,
                         std::int64_t rows, std::string input_gradient_name);
  /// For `rows` rows of `to`.
  void InputGradient(const LinearPart& linear, const std::vector<TensorId>& gradients, std::int64_t rows, TensorId to);

  const Decoder& decoder_;
  const Partition& partition_;
  LocalShape shape_;
  BlockBuilder builder_;
};

Block BuildEmbedding(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition,
                     const std::string& name = "embedding");
Block BuildLayer(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition,
                 const std::string& name = "layer");
Block BuildHead(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition);

/// The forward half of a head and its loss (Calculate::own_loss) behind a norm that others read as well. Returns the
/// backward half, which returns the head's part of the gradient of the norm's output; `parts` must live until then.
std::function<TensorId()> AddHeadWithLoss(DecoderParts& parts, const NormPart& norm, TensorId labels);

}  // namespace tidemark
