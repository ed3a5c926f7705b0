// SPDX-License-Identifier: Apache-2.0
#include "models/network/operator.h"

namespace tidemark {
namespace {

constexpr std::int64_t kStatisticBytes = 4;  // rstd, mean and log-sum-exp are fp32

struct CountFlops {
  Flops operator()(const Gemm& op) const { return Flops(2) * op.batch * op.m * op.n * op.k; }

  // Products of each pair (query, key), at twice a head's size each: scores over those of q and k and the output over
  // that of v in the forward pass; scores again, dQ and dK, and dV and dP in the backward pass (Dao et al.,
  // FlashAttention, 2022, algorithm 4). A causal mask leaves half of the pairs (the diagonal, 1/(2 sequence) of the
  // square, is neglected as in the usual model-FLOPs accounting: PaLM, 2022, appendix B). A window of w of s tokens
  // leaves w s - w^2 / 2, which of w = s is that half.
  Flops operator()(const Attention& op) const {
    const std::int64_t sizes = op.backward ? 3 * op.head_size + 2 * op.value_size() : op.head_size + op.value_size();
    const Flops pair = Flops(2) * op.batch * op.heads * sizes, square = pair * op.sequence * op.sequence;
    const Flops full = op.causal ? square / 2 : square;
    if (op.window == 0) {
      return full;
    }
    const Flops windowed = pair / 2 * op.window * (2 * op.sequence - op.window);
    // The mean, rounded down; the products of all layers may be more than there are numbers.
    const std::int64_t layers = op.windowed_layers + op.full_layers, more = (full - windowed).count();
    return windowed + Flops(more / layers * op.full_layers + more % layers * op.full_layers / layers);
  }

  // An element of RMSNorm: square, sum, scale by rstd, scale by weight. LayerNorm: also sum, centre, shift. Backward:
  // dx = rstd (w dy - xhat mean(xhat w dy)) is 6, the weight gradient 2; LayerNorm centres both again and sums a bias.
  Flops operator()(const Norm& op) const {
    const std::int64_t forward = op.layer_norm ? 7 : 4;
    const std::int64_t backward = op.layer_norm ? 11 : 8;
    return Flops(op.backward ? backward : forward) * op.rows * op.width;
  }

  // Two multiplications and an addition an element.
  Flops operator()(const Rope& op) const { return Flops(3) * op.elements; }
  Flops operator()(const Pointwise& op) const { return Flops(op.flops_per_element) * op.elements; }
  // A lookup computes nothing; its backward pass adds each row into the table.
  Flops operator()(const Embedding& op) const { return op.backward ? Flops(op.tokens) * op.width : Flops(0); }
  // One pass: an exponential or a subtraction, and a sum or a scale.
  Flops operator()(const CrossEntropy& op) const { return Flops(2) * op.rows * op.vocabulary; }
  Flops operator()(const InfoNce& op) const { return Flops(op.backward ? 4 : 2) * op.rows * op.columns * op.width; }
  Flops operator()(const OptimizerUpdate& op) const { return Flops(op.flops_per_element) * op.elements; }
  Flops operator()(const Tabulated& op) const { return Flops(op.flops); }
};

struct CountBytes {
  Bytes operator()(const Gemm& op) const {
    const Bytes read = SizeOf(op.dtype) * (op.m * op.k + op.k * op.n);
    const Bytes written = SizeOf(op.output) * op.m * op.n;
    return (read + written * (op.accumulate ? 2 : 1)) * op.batch;
  }

  // Forward: q, k, v in; out and log-sum-exp out. Backward: q, k, v, out, dout, lse in; dq, dk, dv out.
  Bytes operator()(const Attention& op) const {
    const std::int64_t rows = op.batch * op.sequence;
    const Bytes query = SizeOf(op.dtype) * rows * op.heads * op.head_size;
    const Bytes key = SizeOf(op.dtype) * rows * op.kv_heads * op.head_size;
    const Bytes value = SizeOf(op.dtype) * rows * op.kv_heads * op.value_size();
    const Bytes output = SizeOf(op.dtype) * rows * op.heads * op.value_size();
    const Bytes once = query + key + value + output;
    return once * (op.backward ? 2 : 1) + Bytes(kStatisticBytes) * rows * op.heads;
  }

  // Forward: x in, y out. Backward: x and dy in, dx out. Weights (and their gradients) and statistics once.
  Bytes operator()(const Norm& op) const {
    const std::int64_t vectors = op.layer_norm ? 2 : 1;
    const Bytes matrix = SizeOf(op.dtype) * op.rows * op.width;
    const Bytes weights = SizeOf(op.dtype) * op.width * vectors;
    const Bytes statistics = Bytes(kStatisticBytes) * op.rows * vectors;
    return op.backward ? matrix * 3 + weights * 2 + statistics : matrix * 2 + weights + statistics;
  }

  Bytes operator()(const Rope& op) const { return SizeOf(op.dtype) * op.elements * 2; }
  Bytes operator()(const Pointwise& op) const { return Bytes(op.bytes_moved); }

  // Forward: ids and rows in, rows out. Backward: ids and dy in; the touched rows read and written.
  Bytes operator()(const Embedding& op) const {
    const Bytes ids = SizeOf(DType::int64) * op.tokens;
    return ids + SizeOf(op.dtype) * op.tokens * op.width * (op.backward ? 3 : 2);
  }

  Bytes operator()(const CrossEntropy& op) const { return Bytes(op.bytes_moved); }

  // Forward: X and Y in, logits out. Backward: the logits' gradient, X and Y in, dX and dY out.
  Bytes operator()(const InfoNce& op) const {
    const Bytes representations = SizeOf(op.dtype) * ((op.rows + op.columns) * op.width);
    const Bytes logits = SizeOf(op.dtype) * (op.rows * op.columns);
    return op.backward ? logits + representations * 2 : logits + representations;
  }

  Bytes operator()(const OptimizerUpdate& op) const { return Bytes(op.bytes_moved); }
  Bytes operator()(const Tabulated& op) const { return Bytes(op.bytes_moved); }
};

}  // namespace

Attention Attention::Windowed() const {
  Attention one = *this;
  one.windowed_layers = 1;
  one.full_layers = 0;
  return one;
}

Attention Attention::Full() const {
  Attention one = Windowed();
  one.window = 0;
  return one;
}

std::string_view Name(const Operator& op) {
  return std::visit([](const auto& alternative) { return alternative.kName; }, op);
}

Flops FlopsOf(const Operator& op) { return std::visit(CountFlops{}, op); }

Bytes BytesMovedBy(const Operator& op) { return std::visit(CountBytes{}, op); }

}  // namespace tidemark
