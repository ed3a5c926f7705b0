// SPDX-License-Identifier: Apache-2.0
#include "models/machine/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "models/configs/field.h"

namespace tidemark {
namespace {

constexpr std::array kRatedDTypes = {DType::bf16, DType::fp32};
constexpr std::int64_t kStreamBytes = 4, kHalfWidthBytes = 10, kHalfWidthUpdateBytes = 14, kActivationFlops = 5;
constexpr std::int64_t kHalfWidthDropoutBytes = 6, kHalfWidthSumBytes = 3;
constexpr std::int64_t kAlignedBytes = 16, kNarrowHead = 64;
constexpr double kLowestRate = 1000;

/// The smallest dimension of a product, whether that is the one that is summed over, and whether all are rows that a
/// GPU copies in its pieces.
struct Sides {
  std::int64_t smallest;
  bool is_inner, aligned;
};
Sides SidesOf(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
  const auto aligned = [dtype](std::int64_t side) { return (SizeOf(dtype) * side).count() % kAlignedBytes == 0; };
  return {std::min({m, n, k}), k < std::min(m, n), aligned(m) && aligned(n) && aligned(k)};
}

/// Of an operator that is made of matrix products.
std::optional<Sides> SidesOf(const Operator& op) {
  if (const auto* gemm = std::get_if<Gemm>(&op)) {
    return SidesOf(gemm->m, gemm->n, gemm->k, gemm->dtype);
  }
  if (const auto* products = std::get_if<InfoNce>(&op)) {
    Sides sides = SidesOf(products->rows, products->columns, products->width, products->dtype);
    sides.is_inner = sides.is_inner && !products->backward;  // whose sums are over rows and columns
    return sides;
  }
  return std::nullopt;
}

bool IsRated(DType dtype) { return std::find(kRatedDTypes.begin(), kRatedDTypes.end(), dtype) != kRatedDTypes.end(); }

struct FindKind {
  std::string operator()(const Gemm& op) const { return OfProducts(op); }
  std::string operator()(const InfoNce& op) const { return OfProducts(op); }
  std::string operator()(const Attention& op) const {
    return Of(op.head_size > kNarrowHead ? "attention_wide" : "attention", op.backward, op.dtype);
  }
  std::string operator()(const Norm& op) const {
    return Of(op.layer_norm ? "layer_norm" : "norm", op.backward, op.dtype);
  }
  std::string operator()(const Rope& op) const { return Of("rope", false, op.dtype); }
  std::string operator()(const Embedding& op) const { return Of("embedding", op.backward, op.dtype); }
  std::string operator()(const CrossEntropy& op) const {
    return op.backward ? "cross_entropy_backward" : "cross_entropy";
  }
  std::string operator()(const OptimizerUpdate& op) const {
    return BytesOfElement(op) <= kHalfWidthUpdateBytes ? "optimizer_update_narrow" : "optimizer_update";
  }
  std::string operator()(const Tabulated&) const { return {}; }
  std::string operator()(const Pointwise& op) const {
    const std::int64_t bytes = BytesOfElement(op);
    if (op.draws) {
      return Of("dropout", false, bytes <= kHalfWidthDropoutBytes ? DType::bf16 : DType::fp32);
    }
    if (op.column_sums) {
      return Of("column_sum", false, bytes <= kHalfWidthSumBytes ? DType::bf16 : DType::fp32);
    }
    if (bytes <= kStreamBytes) {
      return "stream";
    }
    return Of(op.flops_per_element >= kActivationFlops ? "activation" : "pointwise", false,
              bytes <= kHalfWidthBytes ? DType::bf16 : DType::fp32);
  }

 private:
  template <class Products>
  static std::string OfProducts(const Products& op) {
    const Sides sides = *SidesOf(op);
    return Of(!sides.aligned ? "gemm_unaligned" : sides.is_inner ? "gemm_inner" : "gemm", false, op.dtype);
  }
  template <class Streaming>
  static std::int64_t BytesOfElement(const Streaming& op) {
    return op.elements == 0 ? 0 : op.bytes_moved / op.elements;
  }
  static std::string Of(std::string_view kind, bool backward, DType dtype) {
    return IsRated(dtype) ? fmt::format("{}{}.{}", kind, backward ? "_backward" : "", Name(dtype)) : std::string();
  }
};

/// The kind that stands in for one that a machine was not measured for.
std::string Otherwise(std::string_view key) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kStandIns = {
      {{"gemm_unaligned", "gemm"},
       {"gemm_inner", "gemm"},
       {"dropout", "pointwise"},
       {"column_sum.bf16", "stream"},
       {"column_sum.fp32", "stream"},
       {"attention_wide", "attention"},
       {"layer_norm", "norm"},
       {"optimizer_update_narrow", "optimizer_update"}}};
  for (const auto& [kind, other] : kStandIns) {
    if (key.starts_with(kind)) {
      return fmt::format("{}{}", other, key.substr(kind.size()));
    }
  }
  return {};
}

std::vector<RatedKind> MakeKinds() {
  std::vector<RatedKind> kinds;
  for (const char* kind : {"gemm", "gemm_inner", "gemm_unaligned", "gemm_small", "attention", "attention_backward",
                           "attention_wide", "attention_wide_backward"}) {
    for (const DType dtype : kRatedDTypes) {
      kinds.push_back({fmt::format("{}.{}", kind, Name(dtype)), true});
    }
  }
  for (const char* kind : {"norm", "norm_backward", "layer_norm", "layer_norm_backward", "rope", "embedding",
                           "embedding_backward", "pointwise", "dropout", "column_sum", "activation"}) {
    for (const DType dtype : kRatedDTypes) {
      kinds.push_back({fmt::format("{}.{}", kind, Name(dtype)), false});
    }
  }
  for (const char* kind :
       {"stream", "cross_entropy", "cross_entropy_backward", "optimizer_update", "optimizer_update_narrow"}) {
    kinds.push_back({kind, false});
  }
  return kinds;
}

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

Result<RatePoint> ReadPoint(std::string_view text, bool arithmetic) {
  const std::size_t colon = text.find(':');
  const std::string_view size = Trimmed(text.substr(0, colon));
  RatePoint point;
  const auto [end, fault] = std::from_chars(size.data(), size.data() + size.size(), point.size);
  if (colon == std::string_view::npos || fault != std::errc() || end != size.data() + size.size() || point.size < 1) {
    return BadInput(fmt::format("'{}' is no size and rate", Trimmed(text)));
  }
  const std::string_view rate = Trimmed(text.substr(colon + 1));
  if (arithmetic) {
    TIDEMARK_ASSIGN(const FlopsPerSec flops, ParseFlopsPerSec(rate));
    point.per_second = flops.per_second();
  } else {
    TIDEMARK_ASSIGN(const BytesPerSec bytes, ParseBytesPerSec(rate));
    point.per_second = bytes.per_second();
  }
  if (point.per_second < kLowestRate) {
    return BadInput(fmt::format("expected at least {} a second, found '{}'", kLowestRate, rate));
  }
  return point;
}

}  // namespace

std::span<const RatedKind> RatedKinds() {
  static const std::vector<RatedKind> kinds = MakeKinds();
  return kinds;
}

std::optional<RatedWork> WorkOf(const Operator& op) {
  std::string key = std::visit(FindKind{}, op);
  if (key.empty()) {
    return std::nullopt;
  }
  std::string otherwise = Otherwise(key);
  const auto rated = [&](std::int64_t size, std::int64_t work) {
    return RatedWork{std::move(key), size, static_cast<double>(work), std::move(otherwise)};
  };
  if (const std::optional<Sides> sides = SidesOf(op)) {
    return rated(sides->smallest, FlopsOf(op).count());
  }
  if (const auto* attention = std::get_if<Attention>(&op)) {
    return rated(attention->sequence, FlopsOf(op).count());
  }
  const std::int64_t bytes = BytesMovedBy(op).count();
  return rated(bytes, bytes);
}

bool IsAligned(const Gemm& op) { return SidesOf(op.m, op.n, op.k, op.dtype).aligned; }

std::optional<RatedWork> SmallWorkOf(const Operator& op) {
  const auto* products = std::get_if<InfoNce>(&op);
  const auto* gemm = std::get_if<Gemm>(&op);
  if ((products == nullptr && gemm == nullptr) || !IsRated(gemm != nullptr ? gemm->dtype : products->dtype)) {
    return std::nullopt;
  }
  const std::int64_t flops = FlopsOf(op).count();
  return RatedWork{fmt::format("gemm_small.{}", Name(gemm != nullptr ? gemm->dtype : products->dtype)),
                   products != nullptr && products->backward ? flops / 2 : flops, static_cast<double>(flops)};
}

double RateAt(const RateCurve& curve, std::int64_t size) {
  TIDEMARK_CHECK(!curve.empty());
  const auto above =
      std::find_if(curve.begin(), curve.end(), [&](const RatePoint& point) { return point.size >= size; });
  if (above == curve.end() || above == curve.begin()) {
    return above == curve.end() ? curve.back().per_second : curve.front().per_second;
  }
  const RatePoint& low = *std::prev(above);
  const double place = std::log(static_cast<double>(size) / static_cast<double>(low.size)) /
                       std::log(static_cast<double>(above->size) / static_cast<double>(low.size));
  return low.per_second * std::pow(above->per_second / low.per_second, place);
}

Result<RateCurve> RateForm::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar) {
    return BadInput(fmt::format("expected sizes with their rates, found {}", Describe(value)));
  }
  RateCurve curve;
  for (std::size_t at = 0; at <= value.text.size();) {
    const std::size_t end = std::min(value.text.find(',', at), value.text.size());
    TIDEMARK_ASSIGN(const RatePoint point, ReadPoint(std::string_view(value.text).substr(at, end - at), arithmetic));
    if (!curve.empty() && curve.back().size >= point.size) {
      return BadInput(fmt::format("expected rising sizes, found {} after {}", point.size, curve.back().size));
    }
    curve.push_back(point);
    at = end + 1;
  }
  return curve;
}

std::string RateForm::Write(const RateCurve& curve) const {
  std::string text;
  for (const RatePoint& point : curve) {
    text += fmt::format("{}{}: {} {}", text.empty() ? "" : ", ", point.size, point.per_second,
                        arithmetic ? "FLOP/s" : "B/s");
  }
  return QuoteYaml(text);
}

std::string RateForm::Example() const {
  return arithmetic ? "\"64: 41.2 GFLOP/s, 256: 90 GFLOP/s\"" : "\"65536: 30 GB/s, 67108864: 9 GB/s\"";
}

}  // namespace tidemark
