// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/dropout_cuda.h"
#include "kernels/eager_attention_cuda.h"
#include "kernels/eager_norm_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// What both families have: casts between the job's narrow dtype and fp32.
class EagerBinder : protected RowOperands {
 public:
  explicit EagerBinder(const RowOperands& operands) : RowOperands(operands) {}

 protected:
  DType narrow() const { return c_.Stored(c_.job.axes.precision.params); }
  DType wide() const { return c_.Stored(DType::fp32); }

  static Operation CopyTo(DType dtype, const ConstTensor& from, double factor = 1) {
    return Operation{{{dtype, from.type.elements}},
                     [=](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0], factor); }};
  }

  template <class Binder>
  struct Row {
    std::string_view name;
    Operation (*bind)(const Binder&);
  };

  template <class Binder, std::size_t n>
  Result<Operation> Find(const std::array<Row<Binder>, n>& rows, std::string_view name) const {
    for (const Row<Binder>& row : rows) {
      if (row.name == name) {
        return row.bind(static_cast<const Binder&>(*this));
      }
    }
    return NotExecuted(c_.name);
  }
};

/// models/network/eager_attention.cc
class AttentionBinder : public EagerBinder {
 public:
  using EagerBinder::EagerBinder;

  Result<Operation> Bind() const {
    using B = AttentionBinder;
    static constexpr std::array kRows = {
        Row<B>{"k.repeat", [](const B& b) { return b.Repeat(kernels::HeadPart::key); }},
        Row<B>{"v.repeat", [](const B& b) { return b.Repeat(kernels::HeadPart::value); }},
        Row<B>{"k.sum_repeats", [](const B& b) { return b.SumRepeats(); }},
        Row<B>{"v.sum_repeats", [](const B& b) { return b.SumRepeats(); }},
        Row<B>{"attention.scores", [](const B& b) { return b.ToScores(on::AttentionScores); }},
        Row<B>{"attention.divide", [](const B& b) { return b.Divide(); }},
        Row<B>{"attention.mask", [](const B& b) { return b.Mask(); }},
        Row<B>{"attention.softmax", [](const B& b) { return b.Softmax(); }},
        Row<B>{"attention.downcast", [](const B& b) { return CopyTo(b.narrow(), b.c_.Read(0)); }},
        Row<B>{"attention.dropout", [](const B& b) { return b.Dropout(false); }},
        Row<B>{"attention.context", [](const B& b) { return b.ToTokens(on::AttentionContext); }},
        Row<B>{"attention.transpose", [](const B& b) { return b.Transpose(); }},
        Row<B>{"attention.weights_gradient", [](const B& b) { return b.ToScores(on::WeightsGradient); }},
        Row<B>{"attention.v_gradient", [](const B& b) { return b.ToTokens(on::ValueGradient); }},
        Row<B>{"attention.dropout_backward", [](const B& b) { return b.Dropout(true); }},
        Row<B>{"attention.upcast", [](const B& b) { return CopyTo(b.wide(), b.c_.Read(0)); }},
        Row<B>{"attention.softmax_backward", [](const B& b) { return b.SoftmaxBackward(); }},
        Row<B>{"attention.divide_backward", [](const B& b) { return b.Divide(); }},
        Row<B>{"attention.q_gradient", [](const B& b) { return b.ToTokens(on::QueryGradient); }},
        Row<B>{"attention.k_gradient", [](const B& b) { return b.ToTokens(on::KeyGradient); }},
    };
    return Find(kRows, row_.name);
  }

 private:
  using Product =
      kernels::OnQueue<const kernels::HeadShape&, const ConstTensor&, const ConstTensor&, const kernels::Tensor&>;

  std::int64_t rows() const { return shape_.batch * shape_.heads * shape_.sequence; }

  Operation Repeat(kernels::HeadPart part) const {
    return {{RepeatedOutput(shape_, c_.Read(0).type.dtype)},
            [=, shape = shape_, heads = c_.Read(0)](Writes writes, const Queue& queue) {
              on::RepeatHeads(queue, shape, part, heads, writes[0]);
            }};
  }
  Operation SumRepeats() const {
    const TensorType repeated = c_.Read(0).type;
    return {{{repeated.dtype, repeated.elements / shape_.heads * shape_.kv_heads}},
            [shape = shape_, from = c_.Read(0)](Writes writes, const Queue& queue) {
              on::SumRepeatedHeads(queue, shape, from, writes[0]);
            }};
  }
  Operation ToScores(Product product) const {
    return {{ScoresOutput(shape_, c_.Read(0).type.dtype)},
            [=, shape = shape_, a = c_.Read(0), b = c_.Read(1)](Writes writes, const Queue& queue) {
              product(queue, shape, a, b, writes[0]);
            }};
  }
  Operation ToTokens(Product product) const {
    return {{RepeatedOutput(shape_, c_.Read(0).type.dtype)},
            [=, shape = shape_, a = c_.Read(0), b = c_.Read(1)](Writes writes, const Queue& queue) {
              product(queue, shape, a, b, writes[0]);
            }};
  }
  Operation Divide() const {
    return CopyTo(c_.Read(0).type.dtype, c_.Read(0), 1 / std::sqrt(static_cast<double>(shape_.head_size)));
  }
  Operation Mask() const {
    return {{c_.Read(0).type},
            [shape = shape_, window = decoder_.WindowOf(c_.block), scores = c_.Read(0)](
                Writes writes, const Queue& queue) { on::CausalMask(queue, shape, window, scores, writes[0]); }};
  }
  Operation Softmax() const {
    const bool casts =
        decoder_.attention_kernel == Decoder::AttentionKernel::eager_fp32_softmax && SizeOf(narrow()) < SizeOf(wide());
    const TensorType scores = c_.Read(0).type;
    return {{{casts ? wide() : scores.dtype, scores.elements}},
            [n = rows(), width = shape_.sequence, from = c_.Read(0)](Writes writes, const Queue& queue) {
              on::Softmax(queue, n, width, from, writes[0]);
            }};
  }
  Operation SoftmaxBackward() const {
    return {
        {{narrow(), c_.Read(0).type.elements}},
        [n = rows(), width = shape_.sequence, gradient = c_.Read(0), softmax = c_.Read(1)](
            Writes writes, const Queue& queue) { on::SoftmaxGradient(queue, n, width, gradient, softmax, writes[0]); }};
  }
  Operation Transpose() const {
    return {{c_.Read(0).type}, [shape = shape_, context = c_.Read(0)](Writes writes, const Queue& queue) {
              on::HeadsToTokens(queue, shape, context, writes[0]);
            }};
  }

  /// Weights are numbered through all samples of the training and all heads of the model, so that however they are cut
  /// into batches and ranks, each is dropped or kept alike.
  Operation Dropout(bool backward) const {
    const std::int64_t own = shape_.heads * shape_.sequence * shape_.sequence;
    const std::int64_t all = own * c_.model.place().size;
    std::vector<kernels::Dropout> samples;
    for (std::int64_t i = 0; i < shape_.batch; ++i) {
      samples.push_back({.p = decoder_.attention_dropout,
                         .seed = c_.seed,
                         .offset = 0,
                         .first = (c_.first_sample + i) * all + c_.model.place().rank * own});
    }
    const ConstTensor input = c_.Read(0), mask = c_.Read(backward ? 1 : 0);
    const kernels::DropoutTypes types = DropoutOutputs(input.type);
    Operation operation{{types.output}, {}};
    if (!backward) {
      operation.outputs.push_back(types.mask);
    }
    operation.run = [=](Writes writes, const Queue& queue) {
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i) * own;
        const ConstTensor from = kernels::Slice(input, at, own);
        const kernels::Tensor to = kernels::Slice(writes[0], at, own);
        backward ? on::DropoutBackward(queue, samples[i], from, kernels::Slice(mask, at, own), to)
                 : on::DropoutForward(queue, samples[i], from, to, kernels::Slice(writes[1], at, own));
      }
    };
    return operation;
  }
};

/// models/network/eager_norm.cc
class NormBinder : public EagerBinder {
 public:
  using EagerBinder::EagerBinder;

  Result<Operation> Bind() const {
    using B = NormBinder;
    static constexpr std::array kRows = {
        Row<B>{"upcast", [](const B& b) { return CopyTo(b.wide(), b.c_.Read(0)); }},
        Row<B>{"square", [](const B& b) { return b.Product(0, 0); }},
        Row<B>{"mean_square", [](const B& b) { return b.ReciprocalRoot(); }},
        Row<B>{"normalise", [](const B& b) { return b.ScaleRows(); }},
        Row<B>{"downcast", [](const B& b) { return CopyTo(b.narrow(), b.c_.Read(0)); }},
        Row<B>{"upcast_weight", [](const B& b) { return CopyTo(b.wide(), b.WeightRead(0)); }},
        Row<B>{"scale", [](const B& b) { return b.ScaleColumns(); }},
        Row<B>{"upcast_gradient", [](const B& b) { return CopyTo(b.wide(), b.c_.Read(0)); }},
        Row<B>{"weight_rows", [](const B& b) { return b.Product(0, 1); }},
        Row<B>{"weight_gradient", [](const B& b) { return b.WeightGradient(); }},
        Row<B>{"scale_backward", [](const B& b) { return b.ScaleColumns(); }},
        Row<B>{"normalise_backward", [](const B& b) { return b.ScaleRows(); }},
        Row<B>{"rstd_products", [](const B& b) { return b.Product(0, 1); }},
        Row<B>{"rstd_gradient", [](const B& b) { return b.RstdGradient(); }},
        Row<B>{"square_backward", [](const B& b) { return b.ScaleRows(); }},
        Row<B>{"sum_backward", [](const B& b) { return b.Sum(); }},
        Row<B>{"downcast_gradient", [](const B& b) { return CopyTo(b.narrow(), b.c_.Read(0)); }},
    };
    const std::string_view name = row_.name;
    return Find(kRows, name.substr(name.find('.') + 1));
  }

 private:
  kernels::Norm Of(const ConstTensor& matrix) const {
    kernels::Norm norm;
    norm.width = Weight().elements;
    norm.rows = matrix.type.elements / norm.width;
    return norm;
  }
  /// That of the norm ("norm1" of "norm1.square"), whether or not the row reads it.
  const Parameter& Weight() const {
    const std::string_view name = std::string_view(row_.name).substr(0, row_.name.find('.'));
    const auto found = std::ranges::find(block_.parameters, name, &Parameter::name);
    TIDEMARK_CHECK(found != block_.parameters.end());
    return *found;
  }
  TensorType RowsOf(const ConstTensor& matrix) const { return {matrix.type.dtype, Of(matrix).rows}; }

  Operation Product(std::size_t first, std::size_t second) const {
    const ConstTensor a = c_.Read(first), b = c_.Read(second);
    return {{a.type},
            [=, norm = Of(a)](Writes writes, const Queue& queue) { on::NormProduct(queue, norm, a, b, writes[0]); }};
  }
  Operation ReciprocalRoot() const {
    const ConstTensor squares = c_.Read(0);
    return {{RowsOf(squares)}, [=, norm = Of(squares)](Writes writes, const Queue& queue) {
              on::NormReciprocalRoot(queue, norm, squares, writes[0]);
            }};
  }
  Operation ScaleRows() const {
    const ConstTensor input = c_.Read(0), rows = c_.Read(1);
    return {{input.type}, [=, norm = Of(input)](Writes writes, const Queue& queue) {
              on::NormScaleRows(queue, norm, input, rows, writes[0]);
            }};
  }
  Operation ScaleColumns() const {
    const ConstTensor input = c_.Read(0), weight = row_.parameters.empty() ? c_.Read(1) : WeightRead(0);
    return {{input.type}, [=, norm = Of(input)](Writes writes, const Queue& queue) {
              on::NormScaleColumns(queue, norm, input, weight, writes[0]);
            }};
  }
  Operation WeightGradient() const {
    const ConstTensor rows = c_.Read(0);
    kernels::Norm norm = Of(rows);
    norm.accumulate = c_.Adds(0);
    return {{NormWeightGradientOutput(norm, GradientType(0))},
            [=](Writes writes, const Queue& queue) { on::ColumnSums(queue, norm, rows, writes[0]); }};
  }
  Operation RstdGradient() const {
    const ConstTensor products = c_.Read(0), rstd = c_.Read(1);
    return {{RowsOf(products)}, [=, norm = Of(products)](Writes writes, const Queue& queue) {
              on::NormRstdGradient(queue, norm, products, rstd, writes[0]);
            }};
  }
  Operation Sum() const {
    const std::vector<ConstTensor> addends = {c_.Read(0), c_.Read(1)};
    return {{addends.front().type}, [=](Writes writes, const Queue& queue) { on::Add(queue, addends, writes[0]); }};
  }
};

}  // namespace

Result<Operation> BindEagerAttention(const RowOperands& operands) { return AttentionBinder(operands).Bind(); }
Result<Operation> BindEagerNorm(const RowOperands& operands) { return NormBinder(operands).Bind(); }

}  // namespace tidemark
