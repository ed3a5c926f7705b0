// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "kernels/info_nce_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/product_cuda.h"
#include "kernels/sum.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// One side's samples: all in a row, or rank by rank beside the other side's.
struct Side {
  std::int64_t ranks = 1, samples = 0;  ///< stretches, and what lies in one
  std::int64_t begin = 0, step = 0;     ///< elements: of the first stretch, and from one to the next
};

Side SideOf(const InfoNce& op, const TensorType& type, bool passages) {
  const std::int64_t per_rank = passages ? op.batch * op.targets : op.batch;
  if (type.elements == op.ranks * per_rank * op.width) {
    return {1, op.ranks * per_rank, 0, 0};
  }
  const std::int64_t both = op.batch * (1 + op.targets);
  TIDEMARK_CHECK(type.elements == op.ranks * both * op.width);
  return {op.ranks, per_rank, passages ? op.batch * op.width : 0, both * op.width};
}

MatrixView Rows(const InfoNce& op, const ConstTensor& tensor, const Side& side, bool transposed = false) {
  return {tensor, side.begin, side.samples, op.width, op.width, transposed};
}

/// The logits of both sides' first stretches.
MatrixView Pairs(const InfoNce& op, const ConstTensor& logits, const Side& queries, const Side& passages,
                 bool transposed) {
  return {logits, 0, queries.samples, passages.samples, op.columns(), transposed};
}

void CheckPooled(const Pool& op, const TensorType& pooled, const TensorType& tokens) {
  TIDEMARK_CHECK(pooled == PoolOutput(op, pooled.dtype) && tokens == PoolGradientOutput(op, tokens.dtype));
}

void DivideByTemperature(const InfoNce& op, const Tensor& tensor, const Queue& queue) {
  if (op.temperature != 1) {
    Scale(1 / op.temperature, tensor, queue);
  }
}

struct LabelElement {
  std::int64_t targets;
  std::int64_t* label;
  __host__ __device__ void operator()(std::int64_t row) const { label[row] = row * targets; }
};

template <class C>
struct ProductOfElements {
  Input<C> a, b;
  template <class At>
  __host__ __device__ auto operator()(At at) const {
    return Map(std::multiplies<>(), a[at], b[at]);
  }
};

template <class C>
struct StoreOne {
  Output<C> to;
  __host__ __device__ void operator()(C value) const { to.Set(0, value); }
};

/// Of the pooled tensor, whose rows are each sample's first.
template <class C>
struct PoolElement {
  std::int64_t width, sample;
  Input<C> tokens;
  Output<C> pooled;
  __host__ __device__ void operator()(std::int64_t i) const { pooled.Set(i, tokens[i / width * sample + i % width]); }
};

/// Of the tokens' gradient.
template <class C>
struct PoolGradientElement {
  std::int64_t width, sample;
  Input<C> pooled_gradient;
  Output<C> gradient;
  __host__ __device__ void operator()(std::int64_t i) const {
    gradient.Set(i, i % sample < width ? pooled_gradient[i / sample * width + i % sample] : C(0));
  }
};

}  // namespace

void InfoNceLabels(const InfoNce& op, const Tensor& labels, const Queue& queue) {
  TIDEMARK_CHECK(labels.type == InfoNceLabelsOutput(op));
  EachElement(queue, op.rows(), LabelElement{op.targets, Elements<std::int64_t>(labels)});
}

void SimilarityForward(const InfoNce& op, const ConstTensor& x, const ConstTensor& y, const Tensor& logits,
                       const Queue& queue) {
  TIDEMARK_CHECK(logits.type == SimilarityOutput(op, logits.type.dtype));
  const Side queries = SideOf(op, x.type, false), passages = SideOf(op, y.type, true);
  const BatchTerm term{
      Rows(op, x, queries), Rows(op, y, passages, true), {.outer = queries.step}, {.inner = passages.step}};
  const BatchResult result{{logits, 0, queries.samples, passages.samples, op.columns()},
                           {.outer = queries.samples * op.columns(), .inner = passages.samples},
                           queries.ranks,
                           passages.ranks};
  SumOfProducts({&term, 1}, result, queue);
  DivideByTemperature(op, logits, queue);
}

void SimilarityBackward(const InfoNce& op, const ConstTensor& d_logits, const ConstTensor& x, const ConstTensor& y,
                        const Tensor& dx, const Tensor& dy, const Queue& queue) {
  TIDEMARK_CHECK(d_logits.type == SimilarityOutput(op, d_logits.type.dtype));
  TIDEMARK_CHECK(dx.type.elements == x.type.elements && dy.type.elements == y.type.elements);
  const Side queries = SideOf(op, x.type, false), passages = SideOf(op, y.type, true);
  // From the logits of one stretch to those of the next.
  const std::int64_t down = queries.samples * op.columns(), across = passages.samples;
  const BatchTerm to_queries{Pairs(op, d_logits, queries, passages, false),
                             Rows(op, y, passages),
                             {.inner = down, .addend = across},
                             {.addend = passages.step},
                             passages.ranks};
  const BatchTerm to_passages{Pairs(op, d_logits, queries, passages, true),
                              Rows(op, x, queries),
                              {.inner = across, .addend = down},
                              {.addend = queries.step},
                              queries.ranks};
  SumOfProducts({&to_queries, 1},
                {{dx, queries.begin, queries.samples, op.width, op.width}, {.inner = queries.step}, 1, queries.ranks},
                queue);
  SumOfProducts(
      {&to_passages, 1},
      {{dy, passages.begin, passages.samples, op.width, op.width}, {.inner = passages.step}, 1, passages.ranks}, queue);
  DivideByTemperature(op, dx, queue);
  if (dy.data != dx.data) {
    DivideByTemperature(op, dy, queue);
  }
}

void SurrogateForward(const ConstTensor& representation, const ConstTensor& cache, const Tensor& surrogate,
                      const Queue& queue) {
  const std::int64_t elements = representation.type.elements;
  TIDEMARK_CHECK(cache.type.elements == elements && surrogate.type.elements == 1);
  InArithmeticOf({representation.type, cache.type, surrogate.type}, [&]<class C>(C) {
    SumAll<C>(queue, elements, ProductOfElements<C>{representation, cache}, StoreOne<C>{surrogate});
  });
}

void PoolForward(const Pool& op, const ConstTensor& tokens, const Tensor& pooled, const Queue& queue) {
  CheckPooled(op, pooled.type, tokens.type);
  InArithmeticOf({tokens.type, pooled.type}, [&]<class C>(C) {
    EachElement(queue, pooled.type.elements, PoolElement<C>{op.width, op.sequence * op.width, tokens, pooled});
  });
}

void PoolBackward(const Pool& op, const ConstTensor& pooled_gradient, const Tensor& tokens_gradient,
                  const Queue& queue) {
  CheckPooled(op, pooled_gradient.type, tokens_gradient.type);
  InArithmeticOf({pooled_gradient.type, tokens_gradient.type}, [&]<class C>(C) {
    EachElement(queue, tokens_gradient.type.elements,
                PoolGradientElement<C>{op.width, op.sequence * op.width, pooled_gradient, tokens_gradient});
  });
}

}  // namespace tidemark::kernels::cuda
