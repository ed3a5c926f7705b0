// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/exponential.h"
#include "kernels/pointwise.h"
#include "kernels/product.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Scores are made in tiles of kTile queries by kTile keys.
constexpr std::int64_t kTile = 64;

/// Tokens [begin, begin + count) of a sequence.
struct Tokens {
  std::int64_t begin = 0, count = 0;
};

/// Calls `body(tile)` for each tile of a sequence of `tokens` that holds one of [from, end).
template <class Body>
void EachTile(std::int64_t from, std::int64_t end, std::int64_t tokens, Body body) {
  for (std::int64_t begin = from / kTile * kTile; from < end && begin < end; begin += kTile) {
    body(Tokens{begin, std::min(kTile, tokens - begin)});
  }
}

/// What one head of one sequence reads, and the scores of a tile of it.
template <class C>
class Head {
 public:
  Head(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v)
      : op_(op),
        q_{q, QueryRows(op.shape, q.type)},
        k_{k, KeyRows(op.shape, k.type)},
        v_{v, ValueRows(op.shape, v.type)},
        scale_(static_cast<C>(op.scale == 0 ? 1 / std::sqrt(static_cast<double>(op.shape.head_size)) : op.scale)),
        scores_(kTile * kTile) {}

  void MoveTo(std::int64_t sequence, std::int64_t head) {
    first_token_ = sequence * op_.shape.sequence;
    head_ = head;
    kv_head_ = head / (op_.shape.heads / op_.shape.kv_heads);
  }

  Matrix<const C> Q(Tokens tile) { return Rows(q_reader_, q_, head_, op_.shape.head_size, tile); }
  Matrix<const C> K(Tokens tile) { return Rows(k_reader_, k_, kv_head_, op_.shape.head_size, tile); }
  Matrix<const C> V(Tokens tile) { return Rows(v_reader_, v_, kv_head_, op_.shape.value_size(), tile); }
  /// Rows of a dense tensor of the output's shape.
  Matrix<const C> OfOutput(TileReader<C>& reader, const ConstTensor& tensor, Tokens tile) {
    const std::int64_t size = op_.shape.value_size();
    return Rows(reader, {tensor, {op_.shape.heads * size, 0, size}}, head_, size, tile);
  }

  /// scale Q K^T, -infinity where a query does not see a key.
  Matrix<C> Scores(Tokens queries, Tokens keys) {
    const Matrix<C> scores{scores_.data(), queries.count, keys.count, keys.count};
    Product(Q(queries), Transposed(K(keys)), scores, false);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const auto within = [&](std::int64_t key) { return std::clamp<std::int64_t>(key - keys.begin, 0, keys.count); };
      const std::int64_t begin = within(op_.FirstSeenBy(queries.begin + i)),
                         end = within(op_.SeenBy(queries.begin + i));
      C* row = scores.data + i * scores.stride;
      std::fill(row, row + begin, -std::numeric_limits<C>::infinity());
      Each(end - begin, [row = row + begin, scale = scale_](std::int64_t j) { row[j] *= scale; });
      std::fill(row + end, row + keys.count, -std::numeric_limits<C>::infinity());
    }
    return scores;
  }

  std::int64_t FirstKey(Tokens queries) const { return op_.FirstSeenBy(queries.begin); }
  /// The end of the keys that any of these queries sees.
  std::int64_t LastKey(Tokens queries) const { return op_.SeenBy(queries.begin + queries.count - 1); }
  /// Number of a token among all of the batch.
  std::int64_t Token(std::int64_t place) const { return first_token_ + place; }
  C scale() const { return scale_; }

  static Matrix<const C> Transposed(Matrix<const C> matrix) {
    matrix.transposed = true;
    return matrix;
  }

 private:
  struct Operand {
    ConstTensor tensor;
    HeadRows rows;
  };

  Matrix<const C> Rows(TileReader<C>& reader, const Operand& operand, std::int64_t head, std::int64_t size,
                       Tokens tile) {
    const MatrixView view{operand.tensor, operand.rows.first + head * operand.rows.apart, op_.shape.tokens(), size,
                          operand.rows.stride};
    return reader.At(view, Token(tile.begin), tile.count, 0, size);
  }

  const Attention& op_;
  Operand q_, k_, v_;
  C scale_;
  std::int64_t first_token_ = 0, head_ = 0, kv_head_ = 0;
  std::vector<C> scores_;
  TileReader<C> q_reader_, k_reader_, v_reader_;
};

/// Online softmax of one tile of queries: after each tile of keys, O and the sum are those of all keys so far, in units
/// of e^(the largest score so far).
template <class C>
class OnlineSoftmax {
 public:
  OnlineSoftmax(std::int64_t queries, std::int64_t size)
      : size_(size),
        largest_(static_cast<std::size_t>(queries), -std::numeric_limits<C>::infinity()),
        sum_(static_cast<std::size_t>(queries)),
        output_(static_cast<std::size_t>(queries * size)) {}

  /// Turns the scores into exponentials on the way.
  void Add(const Matrix<C>& scores, const Matrix<const C>& values) {
    for (std::int64_t i = 0; i < scores.rows; ++i) {
      C* row = scores.data + i * scores.stride;
      C& largest = largest_[static_cast<std::size_t>(i)];
      const C tile_largest = MaxOf(scores.columns, row);
      const C now = tile_largest > largest || std::isnan(tile_largest) ? tile_largest : largest;
      if (now == -std::numeric_limits<C>::infinity()) {  // nothing to see yet, and no difference of infinities
        std::fill_n(row, scores.columns, C(0));
        continue;
      }
      const C shrink = Exp(largest - now);
      Each(scores.columns, [row, now](std::int64_t j) { row[j] = Exp(row[j] - now); });
      C& sum = sum_[static_cast<std::size_t>(i)];
      sum = sum * shrink + SumOf<C>(scores.columns, [row](std::int64_t j) { return row[j]; });
      Each(size_, [o = output_.data() + i * size_, shrink](std::int64_t d) { o[d] *= shrink; });
      largest = now;
    }
    Product(Matrix<const C>{scores.data, scores.rows, scores.columns, scores.stride}, values,
            Matrix<C>{output_.data(), scores.rows, size_, size_}, true);
  }

  /// Returns the log of the sum of exponentials of a row, and writes its output.
  C Finish(std::int64_t i, C* output) const {
    const C sum = sum_[static_cast<std::size_t>(i)];
    const C divisor = sum == 0 ? C(1) : sum;  // of nothing
    Each(size_, [=, o = output_.data() + i * size_](std::int64_t d) { output[d] = o[d] / divisor; });
    return largest_[static_cast<std::size_t>(i)] + std::log(sum);
  }

 private:
  std::int64_t size_;  ///< of a head of values
  std::vector<C> largest_, sum_, output_;
};

template <class C>
void Forward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
             const Tensor& output, const Tensor& lse) {
  const HeadShape& shape = op.shape;
  const std::int64_t size = shape.value_size();
  Head<C> head(op, q, k, v);
  Writer<C> outputs(output, size), lses(lse, 1);
  const auto each_head = [&](std::int64_t number) {
    EachTile(0, shape.sequence, shape.sequence, [&](Tokens queries) {
      OnlineSoftmax<C> softmax(queries.count, size);
      EachTile(head.FirstKey(queries), head.LastKey(queries), shape.sequence,
               [&](Tokens keys) { softmax.Add(head.Scores(queries, keys), head.V(keys)); });
      for (std::int64_t i = 0; i < queries.count; ++i) {
        const std::int64_t row = head.Token(queries.begin + i) * shape.heads + number;
        *lses.At(row, 1) = softmax.Finish(i, outputs.At(row * size, size));
        lses.Done(row, 1);
        outputs.Done(row * size, size);
      }
    });
  };
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (std::int64_t number = 0; number < shape.heads; ++number) {
      head.MoveTo(sequence, number);
      each_head(number);
    }
  }
}

/// The backward pass, one tile of keys of one kv head at a time: their dK and dV are complete when all queries of all
/// heads that share them are done.
template <class C>
class Backward {
 public:
  struct Operands {
    ConstTensor q, k, v, output, lse, output_gradient;
    Tensor dq, dk, dv, dq_accumulator, delta;
  };

  Backward(const Attention& op, const Operands& operands)
      : op_(op),
        operands_(operands),
        head_(op, operands.q, operands.k, operands.v),
        lse_(operands.lse, 1),
        dk_writer_(operands.dk, op.shape.head_size),
        dv_writer_(operands.dv, op.shape.value_size()),
        delta_(Elements<C>(operands.delta)),
        dq_(Elements<C>(operands.dq_accumulator)),
        dk_(static_cast<std::size_t>(kTile * op.shape.head_size)),
        dv_(static_cast<std::size_t>(kTile * op.shape.value_size())),
        dp_(kTile * kTile) {}

  void Run() {
    MakeDelta();
    std::fill_n(dq_, op_.shape.query_elements(), C(0));
    for (std::int64_t sequence = 0; sequence < op_.shape.batch; ++sequence) {
      for (std::int64_t kv_head = 0; kv_head < op_.shape.kv_heads; ++kv_head) {
        EachTile(0, op_.shape.sequence, op_.shape.sequence, [&](Tokens keys) { TileOfKeys(sequence, kv_head, keys); });
      }
    }
  }

 private:
  void MakeDelta() {
    const std::int64_t size = op_.shape.value_size();
    Reader<C> outputs(operands_.output, size), gradients(operands_.output_gradient, size);
    for (std::int64_t row = 0; row < op_.shape.tokens() * op_.shape.heads; ++row) {
      const C* o = outputs.At(row * size, size);
      const C* d = gradients.At(row * size, size);
      delta_[row] = SumOf<C>(size, [o, d](std::int64_t i) { return o[i] * d[i]; });
    }
  }

  void TileOfKeys(std::int64_t sequence, std::int64_t kv_head, Tokens keys) {
    const std::int64_t group = op_.shape.heads / op_.shape.kv_heads;
    std::fill(dk_.begin(), dk_.end(), C(0));
    std::fill(dv_.begin(), dv_.end(), C(0));
    for (std::int64_t number = kv_head * group; number < (kv_head + 1) * group; ++number) {
      head_.MoveTo(sequence, number);
      EachTile(op_.FirstToSee(keys.begin), op_.EndOfSight(keys.begin + keys.count - 1), op_.shape.sequence,
               [&](Tokens queries) { Tile(number, queries, keys); });
    }
    for (std::int64_t j = 0; j < keys.count; ++j) {
      const std::int64_t head = head_.Token(keys.begin + j) * op_.shape.kv_heads + kv_head;
      Write(dk_, j, op_.shape.head_size, dk_writer_, head);
      Write(dv_, j, op_.shape.value_size(), dv_writer_, head);
    }
  }

  static void Write(const std::vector<C>& tile, std::int64_t row, std::int64_t size, Writer<C>& to, std::int64_t head) {
    std::copy_n(tile.data() + row * size, size, to.At(head * size, size));
    to.Done(head * size, size);
  }

  void Tile(std::int64_t number, Tokens queries, Tokens keys) {
    const std::int64_t size = op_.shape.head_size, of_values = op_.shape.value_size(), stride = op_.shape.heads * size;
    const Matrix<C> p = head_.Scores(queries, keys);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const C lse = *lse_.At(RowOf(number, queries, i), 1);
      Each(keys.count, [row = p.data + i * p.stride, lse](std::int64_t j) { row[j] = Exp(row[j] - lse); });
    }
    const Matrix<const C> d_out = head_.OfOutput(gradient_reader_, operands_.output_gradient, queries);
    Product(Head<C>::Transposed(Read(p)), d_out, Matrix<C>{dv_.data(), keys.count, of_values, of_values}, true);
    const Matrix<C> ds{dp_.data(), queries.count, keys.count, keys.count};
    Product(d_out, Head<C>::Transposed(head_.V(keys)), ds, false);
    for (std::int64_t i = 0; i < queries.count; ++i) {
      Each(keys.count,
           [row = ds.data + i * ds.stride, weights = p.data + i * p.stride, delta = delta_[RowOf(number, queries, i)],
            scale = head_.scale()](std::int64_t j) { row[j] = weights[j] * (row[j] - delta) * scale; });
    }
    C* dq = dq_ + head_.Token(queries.begin) * stride + number * size;
    Product(Read(ds), head_.K(keys), Matrix<C>{dq, queries.count, size, stride}, true);
    Product(Head<C>::Transposed(Read(ds)), head_.Q(queries), Matrix<C>{dk_.data(), keys.count, size, size}, true);
  }

  std::int64_t RowOf(std::int64_t number, Tokens queries, std::int64_t i) const {
    return head_.Token(queries.begin + i) * op_.shape.heads + number;
  }
  static Matrix<const C> Read(const Matrix<C>& matrix) {
    return {matrix.data, matrix.rows, matrix.columns, matrix.stride};
  }

  const Attention& op_;
  const Operands& operands_;
  Head<C> head_;
  Reader<C> lse_;
  Writer<C> dk_writer_, dv_writer_;
  C *delta_, *dq_;
  std::vector<C> dk_, dv_, dp_;
  TileReader<C> gradient_reader_;
};

}  // namespace

AttentionTypes AttentionOutputs(const Attention& op, DType dtype) {
  return {{dtype, op.shape.output_elements()}, {StatisticsOf(dtype), op.shape.tokens() * op.shape.heads}};
}

AttentionGradientTypes AttentionGradients(const Attention& op, DType dtype) {
  const TensorType q{dtype, op.shape.query_elements()}, k{dtype, op.shape.key_elements()};
  const DType statistics = StatisticsOf(dtype);
  return {q,
          k,
          {dtype, op.shape.value_elements()},
          {statistics, q.elements},
          {statistics, op.shape.tokens() * op.shape.heads}};
}

void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse) {
  const AttentionTypes types = AttentionOutputs(op, q.type.dtype);
  TIDEMARK_CHECK(output.type == types.output && lse.type == types.lse && op.shape.heads % op.shape.kv_heads == 0);
  TIDEMARK_CHECK(op.window == 0 || (op.window > 0 && op.sight == Sight::causal));
  InArithmeticOf({q.type, k.type, v.type}, [&]<class C>(C) { Forward<C>(op, q, k, v, output, lse); });
}

void AttentionBackward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& output, const ConstTensor& lse, const ConstTensor& output_gradient,
                       const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dq_accumulator,
                       const Tensor& delta) {
  const AttentionTypes saved = AttentionOutputs(op, q.type.dtype);
  const AttentionGradientTypes types = AttentionGradients(op, q.type.dtype);
  TIDEMARK_CHECK(output.type == saved.output && output_gradient.type == saved.output && lse.type == saved.lse);
  TIDEMARK_CHECK(dq.type == types.dq && dk.type == types.dk && dv.type == types.dv);
  TIDEMARK_CHECK(dq_accumulator.type == types.dq_accumulator && delta.type == types.delta);
  TIDEMARK_CHECK(op.window == 0 || (op.window > 0 && op.sight == Sight::causal));
  InArithmeticOf({q.type, k.type, v.type}, [&]<class C>(C) {
    const typename Backward<C>::Operands operands{q,  k,  v,  output,         lse,  output_gradient,
                                                  dq, dk, dv, dq_accumulator, delta};
    Backward<C>(op, operands).Run();
  });
  Copy(dq_accumulator, dq);
}

}  // namespace tidemark::kernels
