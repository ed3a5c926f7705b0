// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/eager_attention_cuda.h"
#include "kernels/product_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

void CheckScores(const HeadShape& shape, const TensorType& type) {
  TIDEMARK_CHECK(type == ScoresOutput(shape, type.dtype));
}
void CheckRepeated(const HeadShape& shape, const TensorType& type) {
  TIDEMARK_CHECK(type == RepeatedOutput(shape, type.dtype));
}

/// The matrices of all heads (inner) of all sequences (outer).
struct HeadMatrices {
  MatrixView first;
  Steps steps;
};

HeadMatrices Transposed(HeadMatrices matrices) {
  matrices.first.transposed = true;
  return matrices;
}

/// Of each token's row in a head.
HeadMatrices TokenRows(const HeadShape& shape, const ConstTensor& tensor, const HeadRows& rows) {
  return {{tensor, rows.first, shape.sequence, shape.head_size, rows.stride},
          {.outer = shape.sequence * rows.stride, .inner = shape.head_size}};
}
HeadMatrices Query(const HeadShape& shape, const ConstTensor& q) {
  return TokenRows(shape, q, QueryRows(shape, q.type));
}
/// Keys or values of every query head: repeated ones, or as many as there are queries.
HeadMatrices Repeated(const HeadShape& shape, const ConstTensor& heads, HeadPart part) {
  if (heads.type.elements == shape.query_elements()) {
    return Query(shape, heads);
  }
  TIDEMARK_CHECK(shape.kv_heads == shape.heads);
  return TokenRows(shape, heads, part == HeadPart::key ? KeyRows(shape, heads.type) : ValueRows(shape, heads.type));
}
/// One behind the other, head by head.
HeadMatrices Dense(const HeadShape& shape, const ConstTensor& tensor, std::int64_t columns) {
  return {{tensor, 0, shape.sequence, columns, columns},
          {.outer = shape.heads * shape.sequence * columns, .inner = shape.sequence * columns}};
}
HeadMatrices Scores(const HeadShape& shape, const ConstTensor& scores) { return Dense(shape, scores, shape.sequence); }

/// c = a b, where c says how its matrices lie in `result`.
void EachHead(const HeadShape& shape, const HeadMatrices& a, const HeadMatrices& b, const HeadMatrices& c,
              const Tensor& result, const Queue& queue) {
  const BatchTerm term{a.first, b.first, a.steps, b.steps};
  const MatrixView& first = c.first;
  SumOfProducts({&term, 1},
                {{result, first.begin, first.rows, first.columns, first.stride}, c.steps, shape.batch, shape.heads},
                queue);
}

/// Element i of [tokens, heads, head_size] that were repeated.
template <class C>
struct RepeatElement {
  std::int64_t heads, group, size;
  HeadRows rows;
  Input<C> from;
  Output<C> repeated;
  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t head = i / size % heads, token = i / size / heads;
    repeated.Set(i, from[token * rows.stride + rows.first + head / group * size + i % size]);
  }
};

template <class C>
struct SumGroupElement {
  std::int64_t group, size;
  Input<C> repeated;
  Output<C> heads;
  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t begin = i / size * group * size + i % size;
    C sum = repeated[begin];
    for (std::int64_t member = 1; member < group; ++member) {
      sum += repeated[begin + member * size];
    }
    heads.Set(i, sum);
  }
};

template <class C>
struct MaskRow {
  std::int64_t sequence, window;
  Input<C> scores;
  Output<C> masked;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * sequence, last = begin + row % sequence;
    const std::int64_t before = window > 0 ? last - window : begin - 1;
    const auto visible = [&](std::int64_t i, C score) {
      return i <= last && i > before ? score : -std::numeric_limits<C>::infinity();
    };
    team.Each(begin, begin + sequence, [&](auto at) { masked.Set(at, Map(visible, IndexOf(at), scores[at])); });
  }
};

template <class C>
struct SoftmaxRow {
  std::int64_t width;
  Input<C> scores;
  Output<C> softmax;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    const C largest = team.Max<C>(begin, end, [&](auto at) { return scores[at]; });
    const auto exponential = [&](C x) { return std::exp(x - largest); };
    const C sum = team.Sum<C>(begin, end, [&](auto at) { return Map(exponential, scores[at]); });
    team.Each(begin, end,
              [&](auto at) { softmax.Set(at, Map([&](C x) { return exponential(x) / sum; }, scores[at])); });
  }
};

template <class C>
struct SoftmaxGradientRow {
  std::int64_t width;
  Input<C> gradient, softmax;
  Output<C> scores_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    const C along =
        team.Sum<C>(begin, end, [&](auto at) { return Map(std::multiplies<>(), softmax[at], gradient[at]); });
    const auto dx = [&](C y, C dy) { return y * (dy - along); };
    team.Each(begin, end, [&](auto at) { scores_gradient.Set(at, Map(dx, softmax[at], gradient[at])); });
  }
};

/// Element i of [batch, sequence, heads, head_size].
template <class C>
struct TokensElement {
  std::int64_t sequence, heads, size;
  Input<C> context;
  Output<C> output;
  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t head = i / size % heads, token = i / size / heads;
    output.Set(i, context[((token / sequence * heads + head) * sequence + token % sequence) * size + i % size]);
  }
};

}  // namespace

void RepeatHeads(const HeadShape& shape, HeadPart part, const ConstTensor& heads, const Tensor& repeated,
                 const Queue& queue) {
  CheckRepeated(shape, repeated.type);
  const HeadRows rows = part == HeadPart::key ? KeyRows(shape, heads.type) : ValueRows(shape, heads.type);
  InArithmeticOf({heads.type, repeated.type}, [&]<class C>(C) {
    EachElement(queue, repeated.type.elements,
                RepeatElement<C>{shape.heads, shape.heads / shape.kv_heads, shape.head_size, rows, heads, repeated});
  });
}

void SumRepeatedHeads(const HeadShape& shape, const ConstTensor& repeated, const Tensor& heads, const Queue& queue) {
  CheckRepeated(shape, repeated.type);
  TIDEMARK_CHECK(heads.type.elements == shape.key_elements());
  InArithmeticOf({repeated.type, heads.type}, [&]<class C>(C) {
    EachElement(queue, heads.type.elements,
                SumGroupElement<C>{shape.heads / shape.kv_heads, shape.head_size, repeated, heads});
  });
}

void AttentionScores(const HeadShape& shape, const ConstTensor& q, const ConstTensor& k, const Tensor& scores,
                     const Queue& queue) {
  CheckScores(shape, scores.type);
  EachHead(shape, Query(shape, q), Transposed(Repeated(shape, k, HeadPart::key)), Scores(shape, scores), scores, queue);
}

void CausalMask(const HeadShape& shape, std::int64_t window, const ConstTensor& scores, const Tensor& masked,
                const Queue& queue) {
  CheckScores(shape, scores.type);
  CheckScores(shape, masked.type);
  TIDEMARK_CHECK(window >= 0);
  InArithmeticOf({scores.type, masked.type}, [&]<class C>(C) {
    EachRow(queue, masked.type.elements / shape.sequence, MaskRow<C>{shape.sequence, window, scores, masked});
  });
}

void Softmax(std::int64_t rows, std::int64_t width, const ConstTensor& scores, const Tensor& softmax,
             const Queue& queue) {
  TIDEMARK_CHECK(scores.type.elements == rows * width && softmax.type.elements == rows * width);
  InArithmeticOf({scores.type, softmax.type}, [&]<class C>(C) {
    EachRow(queue, rows, SoftmaxRow<C>{width, scores, softmax});
  });
}

void SoftmaxGradient(std::int64_t rows, std::int64_t width, const ConstTensor& gradient, const ConstTensor& softmax,
                     const Tensor& scores_gradient, const Queue& queue) {
  const std::int64_t elements = rows * width;
  TIDEMARK_CHECK(gradient.type.elements == elements && softmax.type.elements == elements);
  TIDEMARK_CHECK(scores_gradient.type.elements == elements);
  InArithmeticOf({gradient.type, softmax.type, scores_gradient.type}, [&]<class C>(C) {
    EachRow(queue, rows, SoftmaxGradientRow<C>{width, gradient, softmax, scores_gradient});
  });
}

void AttentionContext(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& v, const Tensor& context,
                      const Queue& queue) {
  CheckScores(shape, weights.type);
  CheckRepeated(shape, context.type);
  EachHead(shape, Scores(shape, weights), Repeated(shape, v, HeadPart::value), Dense(shape, context, shape.head_size),
           context, queue);
}

void HeadsToTokens(const HeadShape& shape, const ConstTensor& context, const Tensor& output, const Queue& queue) {
  CheckRepeated(shape, context.type);
  CheckRepeated(shape, output.type);
  InArithmeticOf({context.type, output.type}, [&]<class C>(C) {
    EachElement(queue, output.type.elements,
                TokensElement<C>{shape.sequence, shape.heads, shape.head_size, context, output});
  });
}

void WeightsGradient(const HeadShape& shape, const ConstTensor& output_gradient, const ConstTensor& v,
                     const Tensor& weights_gradient, const Queue& queue) {
  CheckScores(shape, weights_gradient.type);
  EachHead(shape, Query(shape, output_gradient), Transposed(Repeated(shape, v, HeadPart::value)),
           Scores(shape, weights_gradient), weights_gradient, queue);
}

void ValueGradient(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& output_gradient,
                   const Tensor& dv, const Queue& queue) {
  CheckRepeated(shape, dv.type);
  EachHead(shape, Transposed(Scores(shape, weights)), Query(shape, output_gradient), Query(shape, dv), dv, queue);
}

void QueryGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& k, const Tensor& dq,
                   const Queue& queue) {
  CheckRepeated(shape, dq.type);
  EachHead(shape, Scores(shape, scores_gradient), Repeated(shape, k, HeadPart::key), Query(shape, dq), dq, queue);
}

void KeyGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& q, const Tensor& dk,
                 const Queue& queue) {
  CheckRepeated(shape, dk.type);
  EachHead(shape, Transposed(Scores(shape, scores_gradient)), Query(shape, q), Query(shape, dk), dk, queue);
}

}  // namespace tidemark::kernels::cuda
