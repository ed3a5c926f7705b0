// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/attention_cuda.h"
#include "kernels/cross_entropy_cuda.h"
#include "kernels/dropout_cuda.h"
#include "kernels/embedding_cuda.h"
#include "kernels/glu_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/norm_cuda.h"
#include "kernels/optimizer_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/rope_cuda.h"
#include "models/machine/rates.h"
#include "models/network/operator.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/operands.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Queue;
namespace on = kernels::on;
using Layer = CalibrationSizes::Layer;

/// Operators of one size, with their work: those of one kind count as one, with the time of all.
using Runs = std::vector<std::pair<Operator, Device::Work>>;

/// By which curve an operator is measured.
using Rating = std::optional<RatedWork> (*)(const Operator&);

bool IsOfBytes(const std::string& key) {
  const std::span<const RatedKind> kinds = RatedKinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const RatedKind& known) { return known.key == key; });
  TIDEMARK_CHECK(kind != kinds.end());
  return !kind->arithmetic;
}

/// Curves under way: each kind's points in the order in which they are measured, by rising size.
class Curves {
 public:
  Curves(Device& device, const CalibrationSizes& sizes, const RateLimits& limits)
      : stopwatch_(device, sizes.held),
        launch_(static_cast<double>(limits.launch.count()) * 1e-9),
        most_(limits.bytes) {}

  /// A point of each kind that is among the runs.
  void Measure(const Runs& runs, Rating rating = WorkOf) {
    struct Sum {
      std::int64_t size = 0;
      double work = 0, seconds = 0;
    };
    constexpr double kLeastShare = 0.1;
    std::map<std::string, Sum> sums;
    for (const auto& [op, run] : runs) {
      const std::optional<RatedWork> rated = rating(op);
      TIDEMARK_CHECK(rated);
      const double taken = stopwatch_.SecondsOfWork(run);
      Sum& sum = sums[rated->key];
      sum.size = rated->size;
      sum.work += rated->work;
      sum.seconds += std::max(taken - launch_, kLeastShare * taken);
    }
    for (const auto& [key, sum] : sums) {
      const double rate = sum.work / sum.seconds;
      RateCurve& curve = rates_[key];
      TIDEMARK_CHECK(curve.empty() || sum.size > curve.back().size);
      curve.push_back({sum.size, FourDigits(most_ && IsOfBytes(key) ? std::min(rate, most_->per_second()) : rate)});
    }
  }
  void Measure(const Operator& op, const Device::Work& run) { Measure({{op, run}}); }
  std::map<std::string, RateCurve> Take() && { return std::move(rates_); }

 private:
  Stopwatch stopwatch_;
  double launch_;
  std::optional<BytesPerSec> most_;
  std::map<std::string, RateCurve> rates_;
};

struct LayerOperands {
  LayerOperands(Operands& operands, const Layer& of, DType dtype)
      : linear{.rows = of.rows, .in = of.in, .out = of.out},
        x(operands.Make(dtype, of.rows * of.in)),
        w(operands.Make(dtype, of.out * of.in)),
        y(operands.Make(dtype, of.rows * of.out)),
        dw(operands.Make(dtype, of.out * of.in)),
        dy(y) {}

  kernels::Linear linear;
  kernels::Tensor x, w, y, dw;
  ConstTensor dy;
};

/// The three products of a linear layer in turn, which pack their operands differently.
void AddProducts(const LayerOperands& layer, Runs& runs) {
  const auto& [rows, in, out, accumulate] = layer.linear;
  const DType dtype = layer.x.type.dtype;
  const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return Gemm{.m = m, .n = n, .k = k, .dtype = dtype, .output = dtype};
  };
  runs.emplace_back(gemm(rows, out, in), [&layer](const Queue& queue) {
    on::LinearForward(queue, layer.linear, layer.x, layer.w, {}, {&layer.y, 1});
  });
  runs.emplace_back(gemm(rows, in, out), [&layer](const Queue& queue) {
    on::LinearInputGradient(queue, layer.linear, {&layer.dy, 1}, layer.w, layer.x);
  });
  runs.emplace_back(gemm(out, in, rows), [&layer](const Queue& queue) {
    on::LinearWeightGradient(queue, layer.linear, layer.x, {&layer.dy, 1}, layer.dw);
  });
}

void MeasureGemms(Curves& curves, Device& device, const CalibrationSizes& sizes,
                  const std::vector<std::vector<Layer>>& points, Rating rating, DType dtype) {
  for (const std::vector<Layer>& point : points) {
    Operands operands(device, sizes.memory);
    std::deque<LayerOperands> layers;
    Runs runs;
    for (const Layer& layer : point) {
      AddProducts(layers.emplace_back(operands, layer, dtype), runs);
    }
    curves.Measure(runs, rating);
  }
}

struct AttentionOperands {
  AttentionOperands(Operands& operands, const kernels::HeadShape& shape, DType dtype) : attention{.shape = shape} {
    const kernels::AttentionTypes made = AttentionOutputs(attention, dtype);
    const kernels::AttentionGradientTypes gradients = AttentionGradients(attention, dtype);
    q = operands.Make(gradients.dq), k = operands.Make(gradients.dk), v = operands.Make(gradients.dv);
    out = operands.Make(made.output), lse = operands.Make(made.lse), d_out = operands.Make(made.output);
    dq = operands.Make(gradients.dq), dk = operands.Make(gradients.dk), dv = operands.Make(gradients.dv);
    sum = operands.Make(gradients.dq_accumulator), delta = operands.Make(gradients.delta);
  }

  kernels::Attention attention;
  kernels::Tensor q, k, v, out, lse, d_out, dq, dk, dv, sum, delta;
};

void MeasureAttention(Curves& curves, Device& device, const CalibrationSizes& sizes, DType dtype) {
  for (const std::int64_t sequence : sizes.sequences) {
    for (const std::int64_t head_size : sizes.head_sizes) {
      Operands operands(device, sizes.memory);
      const std::int64_t batch = std::max<std::int64_t>(1, sizes.attention_tokens / sequence);
      Attention op{.batch = batch,
                   .heads = sizes.heads,
                   .kv_heads = sizes.heads,
                   .sequence = sequence,
                   .head_size = head_size,
                   .dtype = dtype};
      const AttentionOperands of(operands, {batch, sequence, sizes.heads, sizes.heads, head_size}, dtype);
      curves.Measure(op, [&of](const Queue& queue) {
        on::AttentionForward(queue, of.attention, of.q, of.k, of.v, of.out, of.lse);
      });
      op.backward = true;
      curves.Measure(op, [&of](const Queue& queue) {
        on::AttentionBackward(queue, of.attention, of.q, of.k, of.v, of.out, of.lse, of.d_out, of.dq, of.dk, of.dv,
                              of.sum, of.delta);
      });
    }
  }
}

/// What a norm reads and writes, in the order of the kernels' arguments.
struct NormOperands {
  kernels::Tensor input, weight, output, rstd, mean, gradient, input_gradient, weight_gradient, bias_gradient;
};

/// Both norms: LayerNorm has a bias and a mean more.
void MeasureNorms(Curves& curves, const NormOperands& of, std::int64_t rows, std::int64_t width, DType dtype) {
  for (const bool layer_norm : {false, true}) {
    const kernels::Norm norm{.rows = rows, .width = width, .layer_norm = layer_norm};
    const auto where = [layer_norm](const kernels::Tensor& tensor) {
      return layer_norm ? std::optional(tensor) : std::nullopt;
    };
    Norm op{.rows = rows, .width = width, .layer_norm = layer_norm, .dtype = dtype};
    curves.Measure(op, [&](const Queue& queue) {
      on::NormForward(queue, norm, of.input, of.weight, where(of.weight), of.output, of.rstd, where(of.mean));
    });
    op.backward = true;
    curves.Measure(op, [&](const Queue& queue) {
      on::NormBackward(queue, norm, of.gradient, of.input, of.rstd, where(of.mean), of.weight, of.input_gradient,
                       of.weight_gradient, where(of.bias_gradient));
    });
  }
}

/// Kernels that stream through rows.
void MeasureRows(Curves& curves, Device& device, const CalibrationSizes& sizes, DType dtype, std::int64_t rows) {
  constexpr std::int64_t kHeadSize = 64;
  Operands operands(device, sizes.memory);
  const std::int64_t width = sizes.width, elements = rows * width, size = SizeOf(dtype).count();
  const kernels::Tensor a = operands.Make(dtype, elements), b = operands.Make(dtype, elements),
                        c = operands.Make(dtype, elements);
  const kernels::Tensor d = operands.Make(dtype, elements), e = operands.Make(dtype, elements),
                        row = operands.Make(dtype, width);
  const kernels::Tensor d_row = operands.Make(dtype, width), rstd = operands.Make(DType::fp32, rows);
  MeasureNorms(curves, {a, row, b, rstd, operands.Make(DType::fp32, rows), c, d, d_row, operands.Make(dtype, width)},
               rows, width, dtype);
  // A token's angles are computed once for all of its heads: these are as many as attention's.
  const std::int64_t heads = std::min(sizes.heads, width / kHeadSize);
  const kernels::Rope rope{.shape = {.batch = 1,
                                     .sequence = elements / (heads * kHeadSize),
                                     .heads = heads,
                                     .kv_heads = heads,
                                     .head_size = kHeadSize}};
  curves.Measure(Rope{.elements = 2 * elements, .dtype = dtype},
                 [&](const Queue& queue) { on::RopeForward(queue, rope, a, b, {}, c, d); });
  const ConstTensor addends[] = {a, b};
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = 3 * size * elements},
                 [&](const Queue& queue) { on::Add(queue, addends, c); });
  const kernels::Glu glu{rows, width};
  curves.Measure(
      {{Pointwise{elements, 3 * size * elements, 5}, [&](const Queue& queue) { on::GluForward(queue, glu, a, b, c); }},
       {Pointwise{elements, 5 * size * elements, 9},
        [&](const Queue& queue) { on::GluBackward(queue, glu, a, b, c, d, e); }}});
  const kernels::Dropout dropout{.p = 0.1};
  const kernels::Tensor mask{{DType::u8, elements}, e.data};
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = (2 * size + 1) * elements, .draws = true},
                 [&](const Queue& queue) { on::DropoutForward(queue, dropout, a, b, mask); });
  const kernels::Linear linear{.rows = rows, .in = width, .out = width};
  const ConstTensor gradient = a;
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = size * elements, .column_sums = true},
                 [&](const Queue& queue) {
                   on::LinearBiasGradient(queue, linear, {&gradient, 1}, d_row);
                 });
  const kernels::Tensor ids = operands.MakeIds(rows, sizes.vocabulary),
                        table = operands.Make(dtype, sizes.vocabulary * width);
  const kernels::Embedding embedding{
      .tokens = rows, .width = width, .vocabulary = sizes.vocabulary, .accumulate = true};
  Embedding embedding_op{.tokens = rows, .width = width, .vocabulary = sizes.vocabulary, .dtype = dtype};
  curves.Measure(embedding_op, [&](const Queue& queue) { on::EmbeddingForward(queue, embedding, ids, table, a); });
  embedding_op.backward = true;
  curves.Measure(embedding_op, [&](const Queue& queue) { on::EmbeddingBackward(queue, embedding, ids, a, table); });
}

/// Updates of tensors that are all of a dtype.
void MeasureUpdate(Curves& curves, Operands& operands, std::int64_t elements, DType dtype) {
  const kernels::Tensor gradient = operands.Make(dtype, elements), weight = operands.Make(dtype, elements);
  const kernels::Tensor first = operands.Make(dtype, elements), second = operands.Make(dtype, elements);
  const kernels::AdamW adamw;
  curves.Measure(OptimizerUpdate{.elements = elements, .bytes_moved = 7 * (SizeOf(dtype) * elements).count()},
                 [&](const Queue& queue) { on::AdamWUpdate(queue, adamw, gradient, weight, first, second); });
}

/// Kernels whose operands are fp32 whatever the model's dtype is.
void MeasureWide(Curves& curves, Device& device, const CalibrationSizes& sizes, std::int64_t rows) {
  Operands operands(device, sizes.memory);
  const std::int64_t elements = rows * sizes.width, bytes = 4 * elements;
  const kernels::Tensor a = operands.Make(DType::fp32, elements), b = operands.Make(DType::fp32, elements);
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = bytes},
                 [&](const Queue& queue) { on::Zero(queue, b); });
  const std::int64_t columns = std::min(elements, sizes.vocabulary), tokens = elements / columns;
  const kernels::Tensor row_max = operands.Make(DType::fp32, tokens), row_sum = operands.Make(DType::fp32, tokens);
  const kernels::Tensor labels = operands.MakeIds(tokens, columns);
  const kernels::CrossEntropy loss{.rows = tokens, .columns = columns, .divisor = 1};
  const auto pass = [&](std::int64_t times, bool backward) {
    return CrossEntropy{.rows = tokens, .vocabulary = columns, .bytes_moved = times * bytes, .backward = backward};
  };
  curves.Measure(
      {{pass(1, false), [&](const Queue& queue) { on::RowMax(queue, loss, a, row_max); }},
       {pass(1, false), [&](const Queue& queue) { on::RowSumOfExponentials(queue, loss, a, row_max, row_sum); }},
       {pass(2, false), [&](const Queue& queue) { on::SoftmaxShift(queue, loss, a, row_max, b); }}});
  curves.Measure(pass(2, true), [&](const Queue& queue) { on::SoftmaxBackward(queue, loss, labels, b); });
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    MeasureUpdate(curves, operands, elements, dtype);
  }
}

}  // namespace

std::map<std::string, RateCurve> MeasureRates(Device& device, const CalibrationSizes& sizes, const RateLimits& limits) {
  Curves curves(device, sizes, limits);
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    MeasureGemms(curves, device, sizes, sizes.products, WorkOf, dtype);
    MeasureGemms(curves, device, sizes, sizes.unaligned_products, WorkOf, dtype);
    MeasureGemms(curves, device, sizes, sizes.small_products, SmallWorkOf, dtype);
    MeasureAttention(curves, device, sizes, dtype);
    for (const std::int64_t rows : sizes.rows) {
      MeasureRows(curves, device, sizes, dtype, rows);
    }
  }
  for (const std::int64_t rows : sizes.rows) {
    MeasureWide(curves, device, sizes, rows);
  }
  return std::move(curves).Take();
}

void WarmUp(Device& device, const CalibrationSizes& sizes) {
  constexpr int kAtATime = 8;
  Operands operands(device, sizes.memory);
  const LayerOperands layer(operands, sizes.peak, DType::bf16);
  Runs runs;
  AddProducts(layer, runs);
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(sizes.warm.count());
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < kAtATime; ++i) {
      device.Give(Stopwatch::kStream, runs.front().second);
    }
    device.Finish(Stopwatch::kStream);
  }
}

FlopsPerSec MeasureProducts(Device& device, const CalibrationSizes& sizes, DType dtype) {
  Operands operands(device, sizes.memory);
  const LayerOperands layer(operands, sizes.peak, dtype);
  Runs runs;
  AddProducts(layer, runs);
  const auto& [forward, run] = runs.front();
  const double seconds = Stopwatch(device, sizes.held).SecondsOfWork(run);
  return FlopsPerSec(FourDigits(static_cast<double>(FlopsOf(forward).count()) / seconds));
}

}  // namespace tidemark
