// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/activation_cuda.h"
#include "kernels/attention_cuda.h"
#include "kernels/dropout_cuda.h"
#include "kernels/embedding_cuda.h"
#include "kernels/glu_cuda.h"
#include "kernels/norm_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

constexpr std::string_view kShared = "shared_";  // before the names of a dense layer beside experts

/// A row of the network's tables and its kernel.
class RowBinder : RowOperands {
 public:
  explicit RowBinder(const RowOperands& operands) : RowOperands(operands) {}

  Result<Operation> operator()(const Gemm& op) const {
    if (std::optional<Result<Operation>> experts = BindExperts(*this)) {
      return std::move(*experts);
    }
    return row_.name.starts_with("attention.") ? BindEagerAttention(*this) : BindLinear(*this, op);
  }

  Result<Operation> operator()(const Norm& op) const { return op.backward ? NormBackward(op) : NormForward(op); }

  Result<Operation> operator()(const Rope& op) const { return BindRotation(*this, op.backward); }

  Result<Operation> operator()(const Attention& op) const {
    const std::int64_t window = op.window > 0 ? decoder_.WindowOf(c_.block) : 0;
    const kernels::Attention attention{.shape = shape_, .sight = SightOf(op), .window = window};
    const std::size_t after = op.backward ? tensors() - 3 : tensors();  // one packed tensor, two in a ring, or three
    const ConstTensor q = c_.Read(0);
    ConstTensor k = c_.Read(after > 1 ? 1 : 0), v = c_.Read(after > 2 ? 2 : 0);
    if (after == 2) {
      v = kernels::Slice(k, shape_.key_elements(), shape_.value_elements());
      k = kernels::Slice(k, 0, shape_.key_elements());
    }
    if (!op.backward) {
      const auto types = AttentionOutputs(attention, q.type.dtype);
      return Operation{{types.output, types.lse}, [=](Writes writes, const Queue& queue) {
                         on::AttentionForward(queue, attention, q, k, v, writes[0], writes[1]);
                       }};
    }
    const ConstTensor output = c_.Read(after), lse = c_.Read(after + 1), gradient = c_.Read(after + 2);
    const auto types = AttentionGradients(attention, q.type.dtype);
    return Operation{{types.dq, types.dk, types.dv, types.dq_accumulator, types.delta},
                     [=](Writes writes, const Queue& queue) {
                       on::AttentionBackward(queue, attention, q, k, v, output, lse, gradient, writes[0], writes[1],
                                             writes[2], writes[3], writes[4]);
                     }};
  }

  Result<Operation> operator()(const Embedding& op) const {
    const Parameter& table = op.backward ? Gradient(0) : Weight(0);
    kernels::Embedding embedding{.tokens = c_.Read(0).type.elements,
                                 .width = table.elements / table.rows,
                                 .vocabulary = table.rows,
                                 .first_row = c_.model.place().rank * table.rows};
    const ConstTensor ids = c_.Read(0), other = op.backward ? c_.Read(1) : WeightRead(0);
    if (!op.backward) {
      return Operation{{EmbeddingOutput(embedding, other.type.dtype)}, [=](Writes writes, const Queue& queue) {
                         on::EmbeddingForward(queue, embedding, ids, other, writes[0]);
                       }};
    }
    embedding.accumulate = c_.Adds(0);
    return Operation{{EmbeddingGradientOutput(embedding, GradientType(0))}, [=](Writes writes, const Queue& queue) {
                       on::EmbeddingBackward(queue, embedding, ids, other, writes[0]);
                     }};
  }

  Result<Operation> operator()(const CrossEntropy&) const {
    return c_.model.pair() ? BindContrastive(c_, row_.name) : BindLoss(c_, row_.name);
  }
  Result<Operation> operator()(const InfoNce&) const { return BindContrastive(c_, row_.name); }

  Result<Operation> operator()(const Pointwise&) const {
    if (std::optional<Result<Operation>> ring = BindRingAttention(*this)) {
      return std::move(*ring);
    }
    if (std::optional<Result<Operation>> latent = BindLatentHeads(*this)) {
      return std::move(*latent);
    }
    if (std::optional<Result<Operation>> experts = BindExperts(*this)) {
      return std::move(*experts);
    }
    const std::string name = row_.name.substr(IsShared() ? kShared.size() : 0);
    if (name.starts_with("attention.") || name.ends_with(".repeat") || name.ends_with(".sum_repeats")) {
      return BindEagerAttention(*this);
    }
    if (name.starts_with("norm")) {
      return BindEagerNorm(*this);
    }
    if (name.starts_with("residual") || name.ends_with(".sum_input_gradient")) {
      return Sum();
    }
    if (name.ends_with("_dropout.forward") || name.ends_with("_dropout.backward")) {
      return Dropout(name.ends_with(".forward"));
    }
    if (name.ends_with("_bias.forward") || name.ends_with("_bias.gradient")) {
      return BindBias(*this, name.ends_with(".forward"));
    }
    if (name.starts_with("rotary_rows.")) {
      return BindRotaryRows(*this);
    }
    if (name.starts_with("positions.")) {
      return Positions(name.ends_with(".forward"));
    }
    if (name.starts_with("activation.")) {
      return Activation(name.ends_with(".forward"));
    }
    const bool glu = name.starts_with("glu.") || name.starts_with("silu.") || name.starts_with("product.") ||
                     name.starts_with("halves.");
    return glu ? GluOperation(name) : BindContrastive(c_, name);
  }

  template <class Other>
  Result<Operation> operator()(const Other&) const {
    return NotExecuted(c_.name);
  }

 private:
  bool IsShared() const { return row_.name.starts_with(kShared); }

  /// In a ring each rank has a stretch from the sequence's front and one as far from its end. Of a rank below, all
  /// queries see the first stretch and none the second; keys of a rank above are seen by queries of the second stretch
  /// alone, and all of them.
  kernels::Sight SightOf(const Attention& op) const {
    using kernels::Sight;
    if (!decoder_.causal) {
      return Sight::all;
    }
    if (op.ring_step == 0) {
      return Sight::causal;
    }
    return op.ring_step <= c_.share.rank ? Sight::first_half_of_keys : Sight::second_half_of_queries;
  }

  kernels::Norm NormOf(const Norm& op) const {
    kernels::Norm norm;
    norm.width = Weight(0).elements;
    norm.rows = c_.Read(0).type.elements / norm.width;
    norm.layer_norm = op.layer_norm;
    return norm;
  }

  Result<Operation> NormForward(const Norm& op) const {
    const kernels::Norm norm = NormOf(op);
    const ConstTensor input = c_.Read(0), weight = WeightRead(0);
    const std::optional<ConstTensor> bias = BiasRead();
    const kernels::NormTypes types = NormOutputs(norm, input.type.dtype);
    Operation operation{{types.output, types.rstd}, [=](Writes writes, const Queue& queue) {
                          const auto mean = norm.layer_norm ? std::optional<kernels::Tensor>(writes[2]) : std::nullopt;
                          on::NormForward(queue, norm, input, weight, bias, writes[0], writes[1], mean);
                        }};
    if (norm.layer_norm) {
      operation.outputs.push_back(types.mean);
    }
    return operation;
  }

  Result<Operation> NormBackward(const Norm& op) const {
    kernels::Norm norm = NormOf(op);
    const ConstTensor gradient = c_.Read(0), input = c_.Read(1), rstd = c_.Read(2), weight = WeightRead(0);
    const auto mean = norm.layer_norm ? std::optional<ConstTensor>(c_.Read(3)) : std::nullopt;
    norm.accumulate = c_.writes.size() > 1 && c_.Adds(1);
    Operation operation{{NormInputGradientOutput(norm, input.type.dtype)}, {}};
    std::optional<std::size_t> weight_at, bias_at;
    for (std::size_t i = 0; i < row_.gradients.size(); ++i) {
      (Gradient(i).name.ends_with("_bias") ? bias_at : weight_at) = operation.outputs.size();
      operation.outputs.push_back(NormWeightGradientOutput(norm, GradientType(i + 1)));
    }
    operation.run = [=](Writes writes, const Queue& queue) {
      const auto at = [&](const std::optional<std::size_t>& i) {
        return i ? std::optional<kernels::Tensor>(writes[*i]) : std::nullopt;
      };
      on::NormBackward(queue, norm, gradient, input, rstd, mean, weight, writes[0], at(weight_at), at(bias_at));
    };
    return operation;
  }

  Result<Operation> Sum() const {
    const std::vector<ConstTensor> addends = Reads(0);
    return Operation{{addends.front().type},
                     [=](Writes writes, const Queue& queue) { on::Add(queue, addends, writes[0]); }};
  }

  /// Elements in a row, and the number of the first of them.
  struct DroppedStretch {
    std::int64_t begin = 0, count = 0, number = 0;
  };

  /// Elements are numbered through all samples of the training, so that however they are cut into batches and ranks,
  /// each is dropped or kept alike.
  std::vector<DroppedStretch> StretchesOf(const ConstTensor& rows_of_rank) const {
    const std::int64_t width = decoder_.hidden, rows = rows_of_rank.type.elements / width;
    const std::int64_t first = rows < shape_.tokens() ? c_.model.place().rank * rows : 0;  // scattered
    std::vector<DroppedStretch> stretches;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t sample = c_.first_sample + (first + row) / shape_.sequence;
      const std::int64_t number =
          (sample * c_.share.sequence + c_.share.PlaceOf((first + row) % shape_.sequence)) * width;
      if (stretches.empty() || number != stretches.back().number + stretches.back().count) {
        stretches.push_back({row * width, 0, number});
      }
      stretches.back().count += width;
    }
    return stretches;
  }

  Result<Operation> Dropout(bool forward) const {
    const ConstTensor input = c_.Read(0);
    const kernels::Dropout dropout{.p = decoder_.dropout, .seed = c_.seed, .offset = 0, .first = 0};
    if (forward) {
      const kernels::DropoutTypes types = DropoutOutputs(input.type);
      return Operation{{types.output, types.mask},
                       [=, stretches = StretchesOf(input)](Writes writes, const Queue& queue) {
                         for (const DroppedStretch& s : stretches) {
                           kernels::Dropout part = dropout;
                           part.first = s.number;
                           on::DropoutForward(queue, part, kernels::Slice(input, s.begin, s.count),
                                              kernels::Slice(writes[0], s.begin, s.count),
                                              kernels::Slice(writes[1], s.begin, s.count));
                         }
                       }};
    }
    const ConstTensor mask = c_.Read(1);
    return Operation{{input.type}, [=](Writes writes, const Queue& queue) {
                       on::DropoutBackward(queue, dropout, input, mask, writes[0]);
                     }};
  }

  Result<Operation> Positions(bool forward) const {
    const Parameter& table = forward ? Weight(0) : Gradient(0);
    const ConstTensor input = c_.Read(0);
    kernels::Positions positions{
        .rows = 0, .width = table.elements / table.rows, .sequence = c_.share.tokens(), .positions = table.rows};
    positions.places = c_.share.places();
    positions.rows = input.type.elements / positions.width;
    const bool scattered = positions.rows < shape_.tokens();
    positions.first_row = scattered ? c_.model.place().rank * positions.rows : 0;
    if (forward) {
      const ConstTensor weight = WeightRead(0);
      return Operation{{PositionsOutput(positions, input.type.dtype)}, [=](Writes writes, const Queue& queue) {
                         on::PositionsForward(queue, positions, input, weight, writes[0]);
                       }};
    }
    positions.accumulate = c_.Adds(0);
    return Operation{{PositionsGradientOutput(positions, GradientType(0))}, [=](Writes writes, const Queue& queue) {
                       on::PositionsBackward(queue, positions, input, writes[0]);
                     }};
  }

  Result<Operation> Activation(bool forward) const {
    const auto kind = decoder_.relu ? kernels::Activation::relu : kernels::Activation::gelu_tanh;
    const ConstTensor first = c_.Read(0);
    if (forward) {
      return Operation{{ActivationOutput(first.type)}, [=](Writes writes, const Queue& queue) {
                         on::ActivationForward(queue, kind, first, writes[0]);
                       }};
    }
    const ConstTensor gradient = c_.Read(1);
    return Operation{{ActivationOutput(first.type)}, [=](Writes writes, const Queue& queue) {
                       on::ActivationBackward(queue, kind, first, gradient, writes[0]);
                     }};
  }

  Result<Operation> GluOperation(const std::string& name) const;
};

Result<Operation> RowBinder::GluOperation(const std::string& name) const {
  const std::int64_t width = (IsShared() ? decoder_.experts.shared_ffn : decoder_.ffn) / c_.model.place().size;
  const kernels::Glu glu{shape_.tokens(), width};
  const ConstTensor first = c_.Read(0);
  const TensorType dense = GluOutput(glu, first.type.dtype);
  const TensorType packed{dense.dtype, 2 * dense.elements};
  const ConstTensor second = c_.Read(tensors() > 1 ? 1 : 0), last = c_.Read(tensors() - 1);
  if (name == "glu.forward" || name == "product.forward") {
    const auto forward = name == "glu.forward" ? on::GluForward : on::ProductForward;
    return Operation{{dense},
                     [=](Writes writes, const Queue& queue) { forward(queue, glu, first, second, writes[0]); }};
  }
  if (name == "silu.forward") {
    return Operation{{dense},
                     [=](Writes writes, const Queue& queue) { on::SiluForward(queue, glu, first, writes[0]); }};
  }
  if (name == "silu.backward") {
    return Operation{
        {dense}, [=](Writes writes, const Queue& queue) { on::SiluBackward(queue, glu, first, second, writes[0]); }};
  }
  if (name == "halves.backward") {
    return Operation{{packed},
                     [=](Writes writes, const Queue& queue) { on::JoinHalves(queue, glu, first, second, writes[0]); }};
  }
  if (name == "product.backward") {
    return Operation{{dense, dense}, [=](Writes writes, const Queue& queue) {
                       on::ProductBackward(queue, glu, first, second, last, writes[0], writes[1]);
                     }};
  }
  if (name == "glu.backward") {
    const bool is_packed = tensors() == 2;
    const ConstTensor up = is_packed ? first : second;
    std::vector<TensorType> types(is_packed ? 1 : 2, is_packed ? packed : dense);
    return Operation{std::move(types), [=](Writes writes, const Queue& queue) {
                       on::GluBackward(queue, glu, first, up, last, writes.front(), writes.back());
                     }};
  }
  return NotExecuted(c_.name);
}

}  // namespace

Result<Operation> BindNetworkOperation(const OperationContext& context, const Calculate& row) {
  TIDEMARK_ASSIGN(const RowOperands operands, RowOperands::Of(context, row));
  if (std::optional<Result<Operation>> chunk = BindLossInChunks(operands)) {
    return std::move(*chunk);
  }
  return std::visit(RowBinder(operands), row.op);
}

}  // namespace tidemark
