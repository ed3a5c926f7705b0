// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_attention.h"

#include <limits>

#include "kernels/exponential.h"
#include "kernels/pointwise.h"
#include "kernels/product.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Matrices of one head of one sequence: of pairs of tokens, and of a token's row each.
class HeadMatrices {
 public:
  HeadMatrices(const HeadShape& shape, std::int64_t sequence, std::int64_t head)
      : shape_(shape), sequence_(sequence), head_(head) {}

  MatrixView Query(const ConstTensor& q) const { return Rows(q, QueryRows(shape_, q.type)); }
  /// Keys or values of every query head: repeated ones, or as many as there are queries.
  MatrixView Repeated(const ConstTensor& heads, HeadPart part) const {
    if (heads.type.elements == shape_.query_elements()) {
      return Query(heads);
    }
    TIDEMARK_CHECK(shape_.kv_heads == shape_.heads);
    return Rows(heads, part == HeadPart::key ? KeyRows(shape_, heads.type) : ValueRows(shape_, heads.type));
  }
  MatrixView Scores(const ConstTensor& scores) const {
    const std::int64_t s = shape_.sequence;
    return {scores, (sequence_ * shape_.heads + head_) * s * s, s, s, s};
  }
  ProductResult ScoresResult(const Tensor& scores) const {
    const MatrixView view = Scores(scores);
    return {scores, view.begin, view.rows, view.columns, view.stride};
  }
  ProductResult RowsResult(const Tensor& rows) const {
    const MatrixView view = Query(rows);
    return {rows, view.begin, view.rows, view.columns, view.stride};
  }
  ProductResult ContextResult(const Tensor& context) const {
    const std::int64_t elements = shape_.sequence * shape_.head_size;
    return {context, (sequence_ * shape_.heads + head_) * elements, shape_.sequence, shape_.head_size,
            shape_.head_size};
  }

 private:
  MatrixView Rows(const ConstTensor& tensor, const HeadRows& rows) const {
    return {tensor, sequence_ * shape_.sequence * rows.stride + rows.first + head_ * shape_.head_size, shape_.sequence,
            shape_.head_size, rows.stride};
  }

  const HeadShape& shape_;
  std::int64_t sequence_, head_;
};

MatrixView Transposed(MatrixView view) {
  view.transposed = true;
  return view;
}

/// Multiplies what `operands(head)` names, for every head of every sequence, into what `result(head)` names.
template <class Operands, class Result>
void EachHead(const HeadShape& shape, Operands operands, Result result) {
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const HeadMatrices matrices(shape, sequence, head);
      const ProductTerm term = operands(matrices);
      SumOfProducts({&term, 1}, result(matrices));
    }
  }
}

void CheckScores(const HeadShape& shape, const TensorType& type) {
  TIDEMARK_CHECK(type == ScoresOutput(shape, type.dtype));
}
void CheckRepeated(const HeadShape& shape, const TensorType& type) {
  TIDEMARK_CHECK(type == RepeatedOutput(shape, type.dtype));
}

}  // namespace

TensorType ScoresOutput(const HeadShape& shape, DType dtype) {
  return {dtype, shape.batch * shape.heads * shape.sequence * shape.sequence};
}
TensorType RepeatedOutput(const HeadShape& shape, DType dtype) { return {dtype, shape.query_elements()}; }

void RepeatHeads(const HeadShape& shape, HeadPart part, const ConstTensor& heads, const Tensor& repeated) {
  CheckRepeated(shape, repeated.type);
  const HeadRows rows = part == HeadPart::key ? KeyRows(shape, heads.type) : ValueRows(shape, heads.type);
  const std::int64_t group = shape.heads / shape.kv_heads, size = shape.head_size;
  for (std::int64_t token = 0; token < shape.tokens(); ++token) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      Copy(Slice(heads, token * rows.stride + rows.first + head / group * size, size),
           Slice(repeated, (token * shape.heads + head) * size, size));
    }
  }
}

void SumRepeatedHeads(const HeadShape& shape, const ConstTensor& repeated, const Tensor& heads) {
  CheckRepeated(shape, repeated.type);
  TIDEMARK_CHECK(heads.type.elements == shape.key_elements());
  const std::int64_t group = shape.heads / shape.kv_heads, size = shape.head_size;
  std::vector<ConstTensor> addends(static_cast<std::size_t>(group));
  for (std::int64_t i = 0; i < shape.tokens() * shape.kv_heads; ++i) {
    for (std::int64_t member = 0; member < group; ++member) {
      addends[static_cast<std::size_t>(member)] = Slice(repeated, (i * group + member) * size, size);
    }
    Add(addends, Slice(heads, i * size, size));
  }
}

void AttentionScores(const HeadShape& shape, const ConstTensor& q, const ConstTensor& k, const Tensor& scores) {
  CheckScores(shape, scores.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{head.Query(q), Transposed(head.Repeated(k, HeadPart::key))};
      },
      [&](const HeadMatrices& head) { return head.ScoresResult(scores); });
}

void CausalMask(const HeadShape& shape, std::int64_t window, const ConstTensor& scores, const Tensor& masked) {
  CheckScores(shape, scores.type);
  CheckScores(shape, masked.type);
  TIDEMARK_CHECK(window >= 0);
  const std::int64_t s = shape.sequence;
  InArithmeticOf({scores.type, masked.type}, [&]<class C>(C) {
    Reader<C> inputs(scores, s);
    Writer<C> outputs(masked, s);
    for (std::int64_t row = 0; row < shape.batch * shape.heads * s; ++row) {
      const std::int64_t end = row % s + 1, begin = window > 0 && end > window ? end - window : 0;
      C* to = outputs.At(row * s, s);
      std::fill_n(to, begin, -std::numeric_limits<C>::infinity());
      std::copy_n(inputs.At(row * s, s) + begin, end - begin, to + begin);
      std::fill(to + end, to + s, -std::numeric_limits<C>::infinity());
      outputs.Done(row * s, s);
    }
  });
}

void Softmax(std::int64_t rows, std::int64_t width, const ConstTensor& scores, const Tensor& softmax) {
  TIDEMARK_CHECK(scores.type.elements == rows * width && softmax.type.elements == rows * width);
  InArithmeticOf({scores.type, softmax.type}, [&]<class C>(C) {
    Reader<C> inputs(scores, width);
    Writer<C> outputs(softmax, width);
    for (std::int64_t begin = 0; begin < rows * width; begin += width) {
      const C* x = inputs.At(begin, width);
      C* y = outputs.At(begin, width);
      const C largest = MaxOf(width, x);
      Each(width, [=](std::int64_t i) { y[i] = Exp(x[i] - largest); });
      const C sum = SumOf<C>(width, [y](std::int64_t i) { return y[i]; });
      Each(width, [=](std::int64_t i) { y[i] /= sum; });
      outputs.Done(begin, width);
    }
  });
}

void SoftmaxGradient(std::int64_t rows, std::int64_t width, const ConstTensor& gradient, const ConstTensor& softmax,
                     const Tensor& scores_gradient) {
  const std::int64_t elements = rows * width;
  TIDEMARK_CHECK(gradient.type.elements == elements && softmax.type.elements == elements);
  TIDEMARK_CHECK(scores_gradient.type.elements == elements);
  InArithmeticOf({gradient.type, softmax.type, scores_gradient.type}, [&]<class C>(C) {
    Reader<C> gradients(gradient, width), saved(softmax, width);
    Writer<C> outputs(scores_gradient, width);
    for (std::int64_t begin = 0; begin < elements; begin += width) {
      const C* dy = gradients.At(begin, width);
      const C* y = saved.At(begin, width);
      const C along = SumOf<C>(width, [=](std::int64_t i) { return y[i] * dy[i]; });
      Each(width, [=, dx = outputs.At(begin, width)](std::int64_t i) { dx[i] = y[i] * (dy[i] - along); });
      outputs.Done(begin, width);
    }
  });
}

void AttentionContext(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& v, const Tensor& context) {
  CheckScores(shape, weights.type);
  CheckRepeated(shape, context.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{head.Scores(weights), head.Repeated(v, HeadPart::value)};
      },
      [&](const HeadMatrices& head) { return head.ContextResult(context); });
}

void HeadsToTokens(const HeadShape& shape, const ConstTensor& context, const Tensor& output) {
  CheckRepeated(shape, context.type);
  CheckRepeated(shape, output.type);
  const std::int64_t size = shape.head_size;
  for (std::int64_t row = 0; row < shape.tokens() * shape.heads; ++row) {
    const std::int64_t head = row % shape.heads, token = row / shape.heads;
    const std::int64_t sequence = token / shape.sequence, place = token % shape.sequence;
    const std::int64_t from = (sequence * shape.heads + head) * shape.sequence + place;
    Copy(Slice(context, from * size, size), Slice(output, row * size, size));
  }
}

void WeightsGradient(const HeadShape& shape, const ConstTensor& output_gradient, const ConstTensor& v,
                     const Tensor& weights_gradient) {
  CheckScores(shape, weights_gradient.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{head.Query(output_gradient), Transposed(head.Repeated(v, HeadPart::value))};
      },
      [&](const HeadMatrices& head) { return head.ScoresResult(weights_gradient); });
}

void ValueGradient(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& output_gradient,
                   const Tensor& dv) {
  CheckRepeated(shape, dv.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{Transposed(head.Scores(weights)), head.Query(output_gradient)};
      },
      [&](const HeadMatrices& head) { return head.RowsResult(dv); });
}

void QueryGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& k, const Tensor& dq) {
  CheckRepeated(shape, dq.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{head.Scores(scores_gradient), head.Repeated(k, HeadPart::key)};
      },
      [&](const HeadMatrices& head) { return head.RowsResult(dq); });
}

void KeyGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& q, const Tensor& dk) {
  CheckRepeated(shape, dk.type);
  EachHead(
      shape,
      [&](const HeadMatrices& head) {
        return ProductTerm{Transposed(head.Scores(scores_gradient)), head.Query(q)};
      },
      [&](const HeadMatrices& head) { return head.RowsResult(dk); });
}

}  // namespace tidemark::kernels
