// SPDX-License-Identifier: Apache-2.0
#include "kernels/info_nce.h"

#include <vector>

#include "kernels/pointwise.h"
#include "kernels/product.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Consecutive samples of one side, and where they lie in a tensor.
struct Samples {
  std::int64_t begin = 0, count = 0, first = 0;  ///< begin: an element; first: a row, or column, of the logits
};

/// One side's samples: all in a row, or rank by rank beside the other side's.
std::vector<Samples> SamplesOf(const InfoNce& op, const TensorType& type, bool passages) {
  const std::int64_t per_rank = passages ? op.batch * op.targets : op.batch;
  if (type.elements == op.ranks * per_rank * op.width) {
    return {{0, op.ranks * per_rank, 0}};
  }
  const std::int64_t both = op.batch * (1 + op.targets);
  TIDEMARK_CHECK(type.elements == op.ranks * both * op.width);
  std::vector<Samples> samples;
  for (std::int64_t rank = 0; rank < op.ranks; ++rank) {
    samples.push_back({(rank * both + (passages ? op.batch : 0)) * op.width, per_rank, rank * per_rank});
  }
  return samples;
}

MatrixView Rows(const InfoNce& op, const ConstTensor& tensor, const Samples& samples, bool transposed) {
  return {tensor, samples.begin, samples.count, op.width, op.width, transposed};
}

MatrixView Pairs(const InfoNce& op, const ConstTensor& logits, const Samples& queries, const Samples& passages,
                 bool transposed) {
  return {logits,    queries.first * op.columns() + passages.first, queries.count, passages.count, op.columns(),
          transposed};
}

void CheckPooled(const Pool& op, const TensorType& pooled, const TensorType& tokens) {
  TIDEMARK_CHECK(pooled == PoolOutput(op, pooled.dtype) && tokens == PoolGradientOutput(op, tokens.dtype));
}

void DivideByTemperature(const InfoNce& op, const Tensor& tensor) {
  if (op.temperature != 1) {
    Scale(1 / op.temperature, tensor);
  }
}

}  // namespace

TensorType InfoNceLabelsOutput(const InfoNce& op) { return {DType::int64, op.rows()}; }
TensorType SimilarityOutput(const InfoNce& op, DType dtype) { return {dtype, op.rows() * op.columns()}; }

void InfoNceLabels(const InfoNce& op, const Tensor& labels) {
  TIDEMARK_CHECK(labels.type == InfoNceLabelsOutput(op));
  auto* label = Elements<std::int64_t>(labels);
  for (std::int64_t row = 0; row < op.rows(); ++row) {
    label[row] = row * op.targets;
  }
}

void SimilarityForward(const InfoNce& op, const ConstTensor& x, const ConstTensor& y, const Tensor& logits) {
  TIDEMARK_CHECK(logits.type == SimilarityOutput(op, logits.type.dtype));
  for (const Samples& queries : SamplesOf(op, x.type, false)) {
    for (const Samples& passages : SamplesOf(op, y.type, true)) {
      const ProductTerm term{Rows(op, x, queries, false), Rows(op, y, passages, true)};
      const MatrixView to = Pairs(op, logits, queries, passages, false);
      SumOfProducts({&term, 1}, {logits, to.begin, to.rows, to.columns, to.stride});
    }
  }
  DivideByTemperature(op, logits);
}

void SimilarityBackward(const InfoNce& op, const ConstTensor& d_logits, const ConstTensor& x, const ConstTensor& y,
                        const Tensor& dx, const Tensor& dy) {
  TIDEMARK_CHECK(d_logits.type == SimilarityOutput(op, d_logits.type.dtype));
  TIDEMARK_CHECK(dx.type.elements == x.type.elements && dy.type.elements == y.type.elements);
  const std::vector<Samples> all_queries = SamplesOf(op, x.type, false), all_passages = SamplesOf(op, y.type, true);
  for (const Samples& queries : all_queries) {
    std::vector<ProductTerm> terms;
    for (const Samples& passages : all_passages) {
      terms.push_back({Pairs(op, d_logits, queries, passages, false), Rows(op, y, passages, false)});
    }
    SumOfProducts(terms, {dx, queries.begin, queries.count, op.width, op.width});
  }
  for (const Samples& passages : all_passages) {
    std::vector<ProductTerm> terms;
    for (const Samples& queries : all_queries) {
      terms.push_back({Pairs(op, d_logits, queries, passages, true), Rows(op, x, queries, false)});
    }
    SumOfProducts(terms, {dy, passages.begin, passages.count, op.width, op.width});
  }
  DivideByTemperature(op, dx);
  if (dy.data != dx.data) {
    DivideByTemperature(op, dy);
  }
}

void SurrogateForward(const ConstTensor& representation, const ConstTensor& cache, const Tensor& surrogate) {
  const std::int64_t elements = representation.type.elements;
  TIDEMARK_CHECK(cache.type.elements == elements && surrogate.type.elements == 1);
  InArithmeticOf({representation.type, cache.type, surrogate.type}, [&]<class C>(C) {
    Reader<C> representations(representation, kStretch), gradients(cache, kStretch);
    C sum = 0;
    EachStretch(elements, [&](std::int64_t begin, std::int64_t count) {
      const C* x = representations.At(begin, count);
      const C* d = gradients.At(begin, count);
      sum += SumOf<C>(count, [x, d](std::int64_t i) { return x[i] * d[i]; });
    });
    Narrow(&sum, surrogate, 0, 1);
  });
}

TensorType PoolOutput(const Pool& op, DType dtype) { return {dtype, op.samples * op.width}; }
TensorType PoolGradientOutput(const Pool& op, DType dtype) { return {dtype, op.samples * op.sequence * op.width}; }

void PoolForward(const Pool& op, const ConstTensor& tokens, const Tensor& pooled) {
  CheckPooled(op, pooled.type, tokens.type);
  for (std::int64_t sample = 0; sample < op.samples; ++sample) {
    Copy(Slice(tokens, sample * op.sequence * op.width, op.width), Slice(pooled, sample * op.width, op.width));
  }
}

void PoolBackward(const Pool& op, const ConstTensor& pooled_gradient, const Tensor& tokens_gradient) {
  CheckPooled(op, pooled_gradient.type, tokens_gradient.type);
  Zero(tokens_gradient);
  for (std::int64_t sample = 0; sample < op.samples; ++sample) {
    Copy(Slice(pooled_gradient, sample * op.width, op.width),
         Slice(tokens_gradient, sample * op.sequence * op.width, op.width));
  }
}

}  // namespace tidemark::kernels
