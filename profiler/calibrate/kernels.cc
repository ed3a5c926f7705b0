// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/rope.h"
#include "models/machine/rates.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/stopwatch.h"
#include "profiler/device/host_device.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {
namespace {

using kernels::Tensor;
using kernels::TensorType;

constexpr Bytes kMemory{std::int64_t{4} << 30};
constexpr std::int64_t kWidth = 512;  ///< of rows

/// Tensors to compute with, full of numbers as large as activations are.
class Operands {
 public:
  Operands() : memory_(MakeAllocator({}, device_.MemoryOf(kMemory)), device_) {}

  Tensor Make(DType dtype, std::int64_t elements) {
    const auto piece = memory_.Allocate(SizeOf(dtype) * elements, 0);
    TIDEMARK_CHECK(piece);
    const Tensor tensor{{dtype, elements}, piece->data};
    if (dtype == DType::int64) {
      for (std::int64_t i = 0; i < elements; ++i) {
        static_cast<std::int64_t*>(tensor.data)[i] = i * 7919 % kWidth;
      }
      return tensor;
    }
    std::vector<float> numbers(static_cast<std::size_t>(elements));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = 0.01F * (static_cast<float>(i * 7919 % 199) - 98.5F) / 99;
    }
    kernels::Copy({{DType::fp32, elements}, numbers.data()}, tensor);
    return tensor;
  }

 private:
  HostDevice device_;
  TensorMemory memory_;
};

/// Curves under way: each kind's points in the order in which they are measured, by rising size.
class Curves {
 public:
  /// Several operators of one kind and size count as one, with the time of all.
  void Measure(const std::vector<std::pair<Operator, std::function<void()>>>& runs) {
    double work = 0, seconds = 0;
    std::optional<RatedWork> rated;
    for (const auto& [op, run] : runs) {
      rated = WorkOf(op);
      TIDEMARK_CHECK(rated);
      work += rated->work;
      seconds += SecondsOf(run);
    }
    rates_[rated->key].push_back({rated->size, FourDigits(work / seconds)});
  }
  void Measure(const Operator& op, const std::function<void()>& run) { Measure({{op, run}}); }
  std::map<std::string, RateCurve> Take() && { return std::move(rates_); }

 private:
  std::map<std::string, RateCurve> rates_;
};

/// The three products of a linear layer in turn, which pack their operands differently.
void MeasureGemms(Curves& curves, DType dtype) {
  for (const std::int64_t small : {16, 32, 64, 128, 256, 512, 1024}) {
    const std::int64_t large = std::max<std::int64_t>(small, kWidth);
    Operands operands;
    const kernels::Linear linear{.rows = large, .in = small, .out = large};
    const Tensor x = operands.Make(dtype, large * small), w = operands.Make(dtype, large * small);
    const Tensor y = operands.Make(dtype, large * large), dw = operands.Make(dtype, large * small);
    const kernels::ConstTensor dy = y;
    const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return Gemm{.m = m, .n = n, .k = k, .dtype = dtype, .output = dtype};
    };
    curves.Measure({{gemm(large, large, small),
                     [&] {
                       LinearForward(linear, x, w, {}, {&y, 1});
                     }},
                    {gemm(large, small, large),
                     [&] {
                       LinearInputGradient(linear, {&dy, 1}, w, x);
                     }},
                    {gemm(large, small, large), [&] {
                       LinearWeightGradient(linear, x, {&dy, 1}, dw);
                     }}});
  }
}

void MeasureAttention(Curves& curves, DType dtype) {
  for (const std::int64_t sequence : {64, 256, 1024}) {
    Operands operands;
    const kernels::Attention attention{
        .shape = {.batch = 1, .sequence = sequence, .heads = 4, .kv_heads = 4, .head_size = 64}};
    Attention op{.batch = 1, .heads = 4, .kv_heads = 4, .sequence = sequence, .head_size = 64, .dtype = dtype};
    const auto made = AttentionOutputs(attention, dtype);
    const auto gradients = AttentionGradients(attention, dtype);
    const auto make = [&](const TensorType& type) { return operands.Make(type.dtype, type.elements); };
    const Tensor q = make(gradients.dq), k = make(gradients.dk), v = make(gradients.dv), out = make(made.output);
    const Tensor lse = make(made.lse), d_out = make(made.output), dq = make(gradients.dq), dk = make(gradients.dk);
    const Tensor dv = make(gradients.dv), sum = make(gradients.dq_accumulator), delta = make(gradients.delta);
    curves.Measure(op, [&] { AttentionForward(attention, q, k, v, out, lse); });
    op.backward = true;
    curves.Measure(op, [&] { AttentionBackward(attention, q, k, v, out, lse, d_out, dq, dk, dv, sum, delta); });
  }
}

/// Kernels whose rows are kWidth wide, from what a core's caches hold to what none does.
void MeasureRows(Curves& curves, DType dtype, std::int64_t rows) {
  Operands operands;
  const std::int64_t elements = rows * kWidth, size = SizeOf(dtype).count();
  const Tensor a = operands.Make(dtype, elements), b = operands.Make(dtype, elements),
               c = operands.Make(dtype, elements);
  const Tensor d = operands.Make(dtype, elements), e = operands.Make(dtype, elements),
               row = operands.Make(dtype, kWidth);
  const Tensor d_row = operands.Make(dtype, kWidth), rstd = operands.Make(DType::fp32, rows);
  const kernels::Norm norm{.rows = rows, .width = kWidth};
  Norm norm_op{.rows = rows, .width = kWidth, .dtype = dtype};
  curves.Measure(norm_op, [&] { NormForward(norm, a, row, {}, b, rstd, {}); });
  norm_op.backward = true;
  curves.Measure(norm_op, [&] { NormBackward(norm, c, a, rstd, {}, row, d, d_row, {}); });
  const kernels::Rope rope{.shape = {.batch = 1, .sequence = rows, .heads = 8, .kv_heads = 8, .head_size = kWidth / 8}};
  curves.Measure(Rope{.elements = 2 * elements, .dtype = dtype}, [&] { RopeForward(rope, a, b, c, d); });
  const kernels::ConstTensor addends[] = {a, b};
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = 3 * size * elements},
                 [&] { kernels::Add(addends, c); });
  const kernels::Glu glu{rows, kWidth};
  curves.Measure({{Pointwise{elements, 3 * size * elements, 5}, [&] { GluForward(glu, a, b, c); }},
                  {Pointwise{elements, 5 * size * elements, 9}, [&] { GluBackward(glu, a, b, c, d, e); }}});
  const Tensor ids = operands.Make(DType::int64, rows), table = operands.Make(dtype, kWidth * kWidth);
  const kernels::Embedding embedding{.tokens = rows, .width = kWidth, .vocabulary = kWidth, .accumulate = true};
  Embedding embedding_op{.tokens = rows, .width = kWidth, .vocabulary = kWidth, .dtype = dtype};
  curves.Measure(embedding_op, [&] { EmbeddingForward(embedding, ids, table, a); });
  embedding_op.backward = true;
  curves.Measure(embedding_op, [&] { EmbeddingBackward(embedding, ids, a, table); });
}

/// Kernels whose operands are fp32 whatever the model's dtype is.
void MeasureWide(Curves& curves, std::int64_t rows) {
  Operands operands;
  const std::int64_t elements = rows * kWidth, bytes = 4 * elements;
  const Tensor a = operands.Make(DType::fp32, elements), b = operands.Make(DType::fp32, elements);
  const Tensor m = operands.Make(DType::fp32, elements), v = operands.Make(DType::fp32, elements);
  const Tensor row_max = operands.Make(DType::fp32, rows), row_sum = operands.Make(DType::fp32, rows);
  const Tensor labels = operands.Make(DType::int64, rows);
  curves.Measure(Pointwise{.elements = elements, .bytes_moved = bytes}, [&] { kernels::Zero(v); });
  const kernels::CrossEntropy loss{.rows = rows, .columns = kWidth, .divisor = 1};
  const auto pass = [&](std::int64_t times, bool backward) {
    return CrossEntropy{.rows = rows, .vocabulary = kWidth, .bytes_moved = times * bytes, .backward = backward};
  };
  curves.Measure({{pass(1, false), [&] { RowMax(loss, a, row_max); }},
                  {pass(1, false), [&] { RowSumOfExponentials(loss, a, row_max, row_sum); }},
                  {pass(2, false), [&] { SoftmaxShift(loss, a, row_max, b); }}});
  curves.Measure(pass(2, true), [&] { SoftmaxBackward(loss, labels, b); });
  curves.Measure(OptimizerUpdate{.elements = elements, .bytes_moved = 7 * bytes}, [&] { AdamWUpdate({}, a, b, m, v); });
}

}  // namespace

std::map<std::string, RateCurve> MeasureRates() {
  Curves curves;
  constexpr std::array<std::int64_t, 4> kRows = {32, 512, 4096, 16384};
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    MeasureGemms(curves, dtype);
    MeasureAttention(curves, dtype);
    for (const std::int64_t rows : kRows) {
      MeasureRows(curves, dtype, rows);
    }
  }
  for (const std::int64_t rows : kRows) {
    MeasureWide(curves, rows);
  }
  return std::move(curves).Take();
}

FlopsPerSec MeasureProducts(DType dtype) {
  Operands operands;
  const kernels::Linear linear{.rows = kWidth, .in = kWidth, .out = kWidth};
  const std::int64_t elements = kWidth * kWidth;
  const kernels::Tensor x = operands.Make(dtype, elements), w = operands.Make(dtype, elements),
                        y = operands.Make(dtype, elements);
  const double seconds = SecondsOf([&] { LinearForward(linear, x, w, {}, {&y, 1}); });
  return FlopsPerSec(FourDigits(2 * static_cast<double>(elements) * static_cast<double>(kWidth) / seconds));
}

BytesPerSec MeasureCopy() {
  constexpr std::int64_t kElements = std::int64_t{64} << 20;
  Operands operands;
  const kernels::Tensor from = operands.Make(DType::fp32, kElements), to = operands.Make(DType::fp32, kElements);
  const double seconds = SecondsOf([&] { kernels::Copy(from, to); });
  return BytesPerSec(FourDigits(2.0 * 4 * static_cast<double>(kElements) / seconds));
}

}  // namespace tidemark
