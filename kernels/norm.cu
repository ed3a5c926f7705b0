// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>

#include "kernels/columns.cuh"
#include "kernels/held.cuh"
#include "kernels/norm_cuda.h"

namespace tidemark::kernels::cuda {
namespace {

void CheckMatrix(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }
void CheckRow(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.width); }

template <class C, class Views, bool kLayerNorm>
struct ForwardRow {
  std::int64_t width;
  C eps;
  typename Views::In input, weight, bias;
  typename Views::Out output;
  Output<C> rstds, means;

  template <class Team>
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    const auto xs = team.Hold(input, begin, 0), ws = team.Hold(weight, begin, begin);
    const C count = static_cast<C>(width);
    const C mean = kLayerNorm ? team.template Sum<C>(begin, end, [&](auto at) { return xs[at]; }) / count : C(0);
    const auto square = [&](C x) { return (x - mean) * (x - mean); };
    const C variance = team.template Sum<C>(begin, end, [&](auto at) { return Map(square, xs[at]); }) / count;
    const C rstd = C(1) / std::sqrt(variance + eps);
    const auto scaled = [&](C x, C w) { return (x - mean) * rstd * w; };
    if constexpr (kLayerNorm) {
      const auto biased = [&](C x, C w, C b) { return scaled(x, w) + b; };
      const auto bs = team.Hold(bias, begin, begin);
      team.Each(begin, end, [&](auto at) { output.Set(at, Map(biased, xs[at], ws[at], bs[at])); });
    } else {
      team.Each(begin, end, [&](auto at) { output.Set(at, Map(scaled, xs[at], ws[at])); });
    }
    team.Once([&] {
      rstds.Set(row, rstd);
      if constexpr (kLayerNorm) {
        means.Set(row, mean);
      }
    });
  }
};

template <class C, class Views, bool kLayerNorm>
struct BackwardRow {
  std::int64_t width;
  typename Views::In gradient, input, weight;
  Input<C> rstds, means;
  typename Views::Out input_gradient;

  template <class Team>
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width;
    Run(team, row, team.Hold(weight, begin, begin), [](auto, const auto&, const auto&) {});
  }

  /// Calls `columns(at, dw, db)` with the row's terms of the other gradients.
  template <class Team, class Weights, class Columns>
  __host__ __device__ void Run(const Team& team, std::int64_t row, const Weights& ws, const Columns& columns) const {
    const std::int64_t begin = row * width, end = begin + width;
    const auto xs = team.Hold(input, begin, 0), dys = team.Hold(gradient, begin, 0);
    const C rstd = rstds[row], mean = kLayerNorm ? means[row] : C(0), count = static_cast<C>(width);
    const auto slope = [&](C x, C dy, C w) { return (x - mean) * rstd * dy * w; };
    const auto slopes = [&](auto at) { return Map(slope, xs[at], dys[at], ws[at]); };
    const C along = team.template Sum<C>(begin, end, slopes) / count;
    const auto product = [&](auto at) { return Map(std::multiplies<>(), dys[at], ws[at]); };
    const C shift = kLayerNorm ? team.template Sum<C>(begin, end, product) / count : C(0);
    const auto dx = [&](C x, C dy, C w) { return rstd * (dy * w - shift - (x - mean) * rstd * along); };
    const auto dw = [&](C x, C dy) { return dy * (x - mean) * rstd; };
    team.Each(begin, end, [&](auto at) {
      const auto x = xs[at], dy = dys[at];
      input_gradient.Set(at, Map(dx, x, dy, ws[at]));
      columns(at, Map(dw, x, dy), dy);
    });
  }
};

/// A share of the rows, with the sums over them of the weight's terms and then of the bias's: a row of `partials`.
template <class C, class Views, bool kLayerNorm>
struct BackwardShare {
  BackwardRow<C, Views, kLayerNorm> body;
  SharedRows rows;
  PartialSums<C> partials;

  __host__ __device__ void operator()(const HoldingTeam& team, std::int64_t share) const {
    const std::int64_t width = body.width;
    const auto ws = team.Hold(body.weight, 0, 0);
    HeldSums<C> weight_sums, bias_sums;
    for (std::int64_t row = rows.begin(share); row < rows.end(share); ++row) {
      body.Run(team, row, ws, [&](HeldAt at, const Pack<C>& dw, const Pack<C>& db) {
        weight_sums[at] = Map(std::plus<>(), weight_sums[at], dw);
        if constexpr (kLayerNorm) {
          bias_sums[at] = Map(std::plus<>(), bias_sums[at], db);
        }
      });
    }
    team.Each(0, width, [&](HeldAt at) {
      partials.Store(share, at, weight_sums[at]);
      if constexpr (kLayerNorm) {
        partials.Store(share, at + width, bias_sums[at]);
      }
    });
  }
};

/// The sums of the shares' sums.
template <class C>
struct SharesColumn {
  std::int64_t width;
  bool accumulate;
  PartialSums<C> partials;
  Output<C> weight_gradient, bias_gradient;

  template <class At>
  __host__ __device__ auto Term(std::int64_t share, At column) const {
    return partials.Term(share, column);
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    if (column < width) {
      weight_gradient.Set(column, accumulate ? weight_gradient[column] + sum : sum);
    } else {
      bias_gradient.Set(column - width, accumulate ? bias_gradient[column - width] + sum : sum);
    }
  }
};

/// A column's gradient: of the weight, or of the bias.
template <class C>
struct WeightColumn {
  std::int64_t width;
  bool layer_norm, of_bias, accumulate;
  Input<C> gradient, input, rstds, means;
  Output<C> sums;

  template <class At>
  __host__ __device__ auto Term(std::int64_t row, At column) const {
    const auto at = column + row * width;
    if (of_bias) {
      return gradient[at];
    }
    const C rstd = rstds[row], mean = layer_norm ? means[row] : C(0);
    return Map([&](C dy, C x) { return dy * (x - mean) * rstd; }, gradient[at], input[at]);
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    sums.Set(column, accumulate ? sums[column] + sum : sum);
  }
};

/// The backward pass, in either of two ways.
template <class C>
struct Backward {
  const Norm& op;
  const ConstTensor &gradient, &input, &rstd, means, &weight;
  const Tensor& input_gradient;
  const Queue& queue;

  /// Blocks share the rows and read them once.
  void ByShares(std::int64_t shares, const Tensor& weight_gradient, const std::optional<Tensor>& bias_gradient) const {
    const std::int64_t columns = bias_gradient ? 2 * op.width : op.width;
    const PartialSums<C> partials{columns, static_cast<C*>(queue.workspace)};
    const SharedRows rows{op.rows, shares, (op.rows + shares - 1) / shares};
    InViewsOf<C>({gradient, input, weight, input_gradient}, [&]<class Views>(Views) {
      const auto run = [&]<bool kLayerNorm>(std::bool_constant<kLayerNorm>) {
        EachRow(queue, shares, BackwardShare<C, Views, kLayerNorm>{RowBody<Views, kLayerNorm>(), rows, partials},
                HoldingTeam(op.width));
      };
      bias_gradient ? run(std::true_type{}) : run(std::false_type{});
    });
    Queue rest = queue;
    const std::int64_t taken = shares * columns * static_cast<std::int64_t>(sizeof(C));
    rest.workspace = static_cast<char*>(queue.workspace) + taken;
    rest.workspace_bytes -= taken;
    EachColumn<C>(
        rest, shares, columns,
        SharesColumn<C>{op.width, op.accumulate, partials, weight_gradient, bias_gradient.value_or(weight_gradient)});
  }

  /// Every gradient by itself.
  void ByRows(const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient) const {
    for (const bool of_bias : {false, true}) {
      if (const std::optional<Tensor>& sums = of_bias ? bias_gradient : weight_gradient) {
        EachColumn<C>(
            queue, op.rows, op.width,
            WeightColumn<C>{op.width, op.layer_norm, of_bias, op.accumulate, gradient, input, rstd, means, *sums});
      }
    }
    if (op.layer_norm) {
      EachRow(queue, op.rows, RowBody<AnyViews<C>, true>());
    } else {
      EachRow(queue, op.rows, RowBody<AnyViews<C>, false>());
    }
  }

 private:
  template <class Views, bool kLayerNorm>
  BackwardRow<C, Views, kLayerNorm> RowBody() const {
    return {op.width, gradient, input, weight, rstd, means, input_gradient};
  }
};

/// As many shares of the rows as there is room for in the workspace, as a large GPU has at work at a time (132
/// processors, on each of them as many warps as their registers allow: 160 of RMSNorm's threads, 200 of LayerNorm's),
/// and as are few beside the rows. At most 1: the rows are not to be shared.
template <class C>
std::int64_t BackwardShares(const Norm& op, DType dtype, const Queue& queue) {
  if (queue.workspace == nullptr || op.width == 0 || !HoldingTeam::Holds(op.width)) {
    return 0;
  }
  constexpr std::int64_t kProcessors = 132, kFewestRows = 4;
  const std::int64_t warps = 12 - (op.layer_norm ? 2 : 0) - (SizeOf(dtype).count() > 2 ? 2 : 0);
  const std::int64_t columns = op.layer_norm ? 2 * op.width : op.width;
  return std::min({queue.workspace_bytes / (static_cast<std::int64_t>(sizeof(C)) * columns),
                   kProcessors * (warps * kWarp / HoldingTeam(op.width).threads()), op.rows / kFewestRows});
}

}  // namespace

void NormForward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
                 const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
                 const std::optional<Tensor>& mean, const Queue& queue) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(bias.has_value() == op.layer_norm && mean.has_value() == op.layer_norm);
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  TIDEMARK_CHECK(!bias || bias->type.elements == op.width);
  InArithmeticOf({input.type, weight.type, output.type}, [&]<class C>(C) {
    const auto run = [&]<class Views>(Views, const auto& team) {
      const auto each = [&]<bool kLayerNorm>(std::bool_constant<kLayerNorm>) {
        const ForwardRow<C, Views, kLayerNorm> body{
            op.width, static_cast<C>(op.eps), input, weight, bias.value_or(weight), output, rstd, mean.value_or(rstd)};
        EachRow(queue, op.rows, body, team);
      };
      op.layer_norm ? each(std::true_type{}) : each(std::false_type{});
    };
    if (HoldingTeam::Holds(op.width)) {
      InViewsOf<C>({input, weight, bias.value_or(weight), output},
                   [&](auto views) { run(views, HoldingTeam(op.width)); });
    } else {
      run(AnyViews<C>{}, Team());
    }
  });
}

void NormBackward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
                  const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
                  const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient,
                  const Queue& queue) {
  CheckMatrix(op, output_gradient.type);
  CheckMatrix(op, input.type);
  CheckMatrix(op, input_gradient.type);
  CheckRow(op, weight.type);
  TIDEMARK_CHECK(mean.has_value() == op.layer_norm && (op.layer_norm || !bias_gradient));
  TIDEMARK_CHECK(rstd.type.elements == op.rows && (!mean || mean->type.elements == op.rows));
  for (const std::optional<Tensor>& sums : {weight_gradient, bias_gradient}) {
    if (sums) {
      CheckRow(op, sums->type);
    }
  }
  InArithmeticOf({output_gradient.type, input.type, weight.type, input_gradient.type}, [&]<class C>(C) {
    const Backward<C> backward{op, output_gradient, input, rstd, mean.value_or(rstd), weight, input_gradient, queue};
    const std::int64_t shares = BackwardShares<C>(op, input.type.dtype, queue);
    if (shares > 1 && weight_gradient && bias_gradient.has_value() == op.layer_norm) {
      backward.ByShares(shares, *weight_gradient, bias_gradient);
    } else {
      backward.ByRows(weight_gradient, bias_gradient);
    }
  });
}

}  // namespace tidemark::kernels::cuda
