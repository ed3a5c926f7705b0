// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cuda.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention_merge_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// How q, k and v are given: each its own, packed in one, or each its own but not at a multiple of 16 bytes, or v with
/// as many elements as it has itself, or one, in front of each head.
enum class Layout : std::uint8_t { dense, packed, shifted, values_apart, values_behind_one };

struct Shape {
  HeadShape heads;
  Sight sight = Sight::causal;
  Layout layout = Layout::dense;
  double scale = 0;
  std::int64_t window = 0;
};

// Tiles are of 64 tokens and of 48, 64 or 128 elements, of fp64 64; words are of 8 elements or less.
constexpr Shape kShapes[] = {
    {{0, 5, 2, 1, 4}},
    {{1, 1, 1, 1, 2}},
    {{1, 67, 4, 2, 48}, Sight::causal, Layout::packed},
    {{1, 130, 1, 1, 64}},
    {{1, 129, 1, 1, 64}, Sight::all, Layout::packed},
    {{2, 64, 1, 1, 16}, Sight::causal, Layout::shifted, 0.1},
    {{1, 70, 1, 1, 128}},
    {{2, 5, 3, 1, 7}, Sight::all, Layout::packed},
    {{1, 66, 1, 1, 150}},
    {{2, 134, 1, 1, 48}, Sight::first_half_of_keys},
    {{2, 134, 2, 1, 64}, Sight::second_half_of_queries},
    {{1, 258, 1, 1, 8}, Sight::second_half_of_queries, Layout::packed},  // the first half is two tiles and a token
    {{1, 134, 1, 1, 150}, Sight::first_half_of_keys},
    {{1, 130, 1, 1, 150}, Sight::second_half_of_queries},
    // Values of another size than queries and keys, as in multi-latent attention: in whole tiles, and in parts of which
    // the last is of one of them alone.
    {{1, 70, 2, 2, 48, 16}, Sight::causal, Layout::values_apart},
    {{1, 66, 2, 1, 24, 64}, Sight::causal, Layout::packed},
    {{1, 66, 1, 1, 192, 128}, Sight::causal, Layout::values_apart},
    {{1, 5, 2, 2, 136, 24}, Sight::causal, Layout::values_behind_one},
    {{1, 6, 1, 1, 40, 150}, Sight::second_half_of_queries},
    // Windows of less than a tile, of a tile and of a token more, over tiles that none of a block's queries or keys
    // sees; in whole heads, where a block may have two tiles of queries, and in parts.
    {.heads = {3, 140, 2, 1, 48}, .layout = Layout::packed, .window = 9},
    {.heads = {1, 200, 1, 1, 64}, .window = 64},
    {.heads = {1, 200, 1, 1, 128}, .window = 65},
    {.heads = {1, 150, 2, 1, 150}, .window = 20},
    {.heads = {1, 66, 1, 1, 8}, .window = 66},
};

// Of a token alone, whose weight is 1: gradients are what is left of a difference, and times infinity anything.
constexpr Shape kItself{.heads = {1, 200, 1, 1, 16}, .window = 1};

/// An attention with its operands; q, k and v of up to three dtypes.
struct Attended {
  Attention op;
  Layout layout;
  std::vector<Operand> operands;  ///< q, k, v, or packed
  Numbers output, lse, gradient;  ///< the truth's, and random dO

  Attended(const Shape& shape, std::initializer_list<DType> dtypes)
      : op{.shape = shape.heads, .sight = shape.sight, .scale = shape.scale, .window = shape.window},
        layout(shape.layout) {
    const HeadShape& s = op.shape;
    op.shape.before_value = layout == Layout::values_apart        ? s.value_size()
                            : layout == Layout::values_behind_one ? 1
                                                                  : 0;
    const std::int64_t shift = layout == Layout::shifted ? 1 : 0;
    const bool packed = layout == Layout::packed;
    unsigned seed = 1;
    for (const DType dtype : dtypes) {
      const std::int64_t dense = seed == 1 ? s.query_elements() : seed == 2 ? s.key_elements() : ValueElements();
      operands.push_back(Read(Some(dtype, packed ? s.packed_elements() : dense + shift, seed)));
      ++seed;
    }
    operands.resize(packed ? 1 : 3);
    const AttentionTypes types = AttentionOutputs(op, DType::fp64), narrow = AttentionOutputs(op, dtype());
    Numbers o(types.output), l(types.lse);
    std::vector<Numbers> wide;
    for (const Operand& operand : operands) {
      wide.push_back(operand.numbers.As(DType::fp64));
    }
    const Tensors t(wide.begin(), wide.end());
    kernels::AttentionForward(op, Q(t), K(t), V(t), o, l);
    for (std::int64_t i = 0; i < l.type().elements; ++i) {
      if (std::isinf(l[i])) {  // of a query that sees nothing here, and something elsewhere
        l.Set(i, 0.5);
      }
    }
    output = o.As(narrow.output.dtype);
    lse = l.As(narrow.lse.dtype);
    gradient = Some(dtype(), s.output_elements(), 4);
  }

  double Scale() const { return op.scale == 0 ? 1 / std::sqrt(static_cast<double>(op.shape.head_size)) : op.scale; }
  DType dtype() const { return operands[0].numbers.type().dtype; }
  Tensor Q(const Tensors& t) const { return Of(t, 0); }
  Tensor K(const Tensors& t) const { return Of(t, 1); }
  Tensor V(const Tensors& t) const { return Of(t, 2); }

 private:
  std::int64_t ValueElements() const {
    return op.shape.value_elements() + op.shape.tokens() * op.shape.kv_heads * op.shape.before_value;
  }
  Tensor Of(const Tensors& t, std::size_t i) const {
    const Tensor& tensor = t[layout == Layout::packed ? 0 : i];
    return layout == Layout::shifted ? Slice(tensor, 1, tensor.type.elements - 1) : tensor;
  }
};

/// Largest sums of what is rounded on its way: weights P of a key, and P |dP - delta| of a query and of a key. A
/// query's weights add up to 1.
struct Sizes {
  double key_weights = 0, query_gradients = 0, key_gradients = 0;
};

Sizes SizesOf(const Attended& a) {
  const HeadShape& s = a.op.shape;
  std::vector<std::vector<double>> values;
  Tensors tensors;
  for (const Operand& operand : a.operands) {
    values.push_back(operand.numbers.values());
  }
  for (std::vector<double>& v : values) {
    tensors.push_back({{DType::fp64, static_cast<std::int64_t>(v.size())}, v.data()});
  }
  const auto rows = [&](const Tensor& tensor, const HeadRows& at) {
    return [=](std::int64_t token, std::int64_t head) {
      return static_cast<const double*>(tensor.data) + token * at.stride + at.first + head * at.apart;
    };
  };
  const HeadRows dense{s.heads * s.value_size(), 0, s.value_size()};
  const auto q = rows(a.Q(tensors), QueryRows(s, a.Q(tensors).type));
  const auto k = rows(a.K(tensors), KeyRows(s, a.K(tensors).type));
  const auto v = rows(a.V(tensors), ValueRows(s, a.V(tensors).type));
  std::vector<double> outputs = a.output.values(), gradients = a.gradient.values();
  const std::vector<double> lse = a.lse.values();
  const auto o = rows({{DType::fp64, 0}, outputs.data()}, dense);
  const auto d = rows({{DType::fp64, 0}, gradients.data()}, dense);
  const auto dot = [](const double* x, const double* y, std::int64_t size) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += x[i] * y[i];
    }
    return sum;
  };
  Sizes sizes;
  std::vector<double> weights(static_cast<std::size_t>(s.tokens() * s.kv_heads)), of_keys(weights.size());
  for (std::int64_t query = 0; query < s.tokens(); ++query) {
    const std::int64_t first = query / s.sequence * s.sequence;
    const std::int64_t end = first + a.op.SeenBy(query - first);
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t kv_head = head / (s.heads / s.kv_heads);
      const double delta = dot(o(query, head), d(query, head), s.value_size());
      double of_query = 0;
      for (std::int64_t key = first + a.op.FirstSeenBy(query - first); key < end; ++key) {
        const double score = dot(q(query, head), k(key, kv_head), s.head_size) * a.Scale();
        const double weight = std::exp(score - lse[static_cast<std::size_t>(query * s.heads + head)]);
        const double size = weight * std::abs(dot(d(query, head), v(key, kv_head), s.value_size()) - delta);
        const auto at = static_cast<std::size_t>(key * s.kv_heads + kv_head);
        of_query += size;
        weights[at] += weight;
        of_keys[at] += size;
        sizes.key_weights = std::max(sizes.key_weights, weights[at]);
        sizes.key_gradients = std::max(sizes.key_gradients, of_keys[at]);
      }
      sizes.query_gradients = std::max(sizes.query_gradients, of_query);
    }
  }
  return sizes;
}

/// Roundings on the way to a result. Tensor cores may cut off what they add instead of rounding it: their sums count
/// twice, as all sums do here.
struct Roundings {
  double size, tokens, product, exponential, narrow;

  Roundings(const Attended& a, bool is_narrow)
      : size(static_cast<double>(a.op.shape.head_size)),
        tokens(2 * static_cast<double>(a.op.shape.sequence + 64)),  // with a tile's zeros
        // A score is a sum of head_size terms, scaled by 1 / sqrt(head_size) at most. e^x is off by what x is, and by 2
        // units in the last place; x is a difference of two of them, or of one and a log of a sum.
        product(2 * size + 4),
        exponential(product * std::sqrt(size) + 2 * std::sqrt(size) + 5 + 5),
        // Weights and their gradients lose one rounding to a tile's narrow dtype; below fp16's normal numbers, half of
        // 2^-24 each, `tokens` at most.
        narrow(!is_narrow                 ? 0
               : a.dtype() == DType::bf16 ? 0x1p16
                                          : 0x1p13) {}
};

bool IsNarrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::fp16; }

template <class Body>
void EachAttention(Body body) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.heads.sequence) + " tokens, heads of " + std::to_string(shape.heads.head_size));
    EachDType([&](DType dtype) { body(Attended(shape, {dtype, dtype, dtype}), IsNarrow(dtype)); });
  }
  SCOPED_TRACE("several dtypes");
  body(Attended({{1, 66, 2, 1, 8}}, {DType::bf16, DType::fp32, DType::fp16}), false);
}

void CheckForward(const Place& place) {
  const auto check = [&](const Attended& a, bool is_narrow) {
    const Roundings r(a, is_narrow);
    const AttentionTypes types = AttentionOutputs(a.op, a.dtype());
    // A mean of values up to 1, by weights and their sum. Each tile of keys multiplies what was there by e^(a
    // difference of scores).
    const double tiles = static_cast<double>(a.op.shape.sequence) / 64 + 1;
    const double sum = r.tokens + r.exponential + tiles * (2 * std::sqrt(r.size) + 6);
    std::vector<Operand> operands = a.operands;
    const std::size_t n = operands.size();
    operands.push_back(Written(types.output, 2 * sum + r.narrow + 2));
    operands.push_back(Written(types.lse, sum + std::log(r.tokens) + std::sqrt(r.size) + 4));
    Compare(place, operands, &kernels::AttentionForward, &cuda::AttentionForward,
            [&](auto run, const Tensors& t) { run(a.op, a.Q(t), a.K(t), a.V(t), t[n], t[n + 1]); });
  };
  EachAttention(check);
  EachDType([&](DType dtype) { check(Attended(kItself, {dtype, dtype, dtype}), IsNarrow(dtype)); });
}

void CheckBackward(const Place& place) {
  EachAttention([&](const Attended& a, bool is_narrow) {
    const Roundings r(a, is_narrow);
    const Sizes sizes = SizesOf(a);
    const AttentionGradientTypes types = AttentionGradients(a.op, a.dtype());
    // dP and delta are sums of value_size() terms up to 1; their difference, weighed, adds its own loss once per
    // weight.
    const double group = static_cast<double>(a.op.shape.heads / a.op.shape.kv_heads);
    const double values = static_cast<double>(a.op.shape.value_size());
    const double delta = (2 * values + 4) * values, scale = a.Scale();
    const double each = r.exponential + r.narrow + 4;
    const double dq = scale * (sizes.query_gradients * (each + r.tokens) + 2 * delta + r.tokens);
    const double dk =
        scale * (sizes.key_gradients * (each + group * r.tokens) + sizes.key_weights * 2 * delta + group * r.tokens);
    std::vector<Operand> operands = a.operands;
    const std::size_t n = operands.size();
    operands.push_back(Read(a.output));
    operands.push_back(Read(a.lse));
    operands.push_back(Read(a.gradient));
    operands.push_back(Written(types.dq, dq));
    operands.push_back(Written(types.dk, dk));
    operands.push_back(Written(types.dv, sizes.key_weights * (each + group * r.tokens) + group * r.tokens));
    operands.push_back(Written(types.dq_accumulator, dq));
    operands.push_back(Written(types.delta, delta));
    Compare(place, operands, &kernels::AttentionBackward, &cuda::AttentionBackward, [&](auto run, const Tensors& t) {
      run(a.op, a.Q(t), a.K(t), a.V(t), t[n], t[n + 1], t[n + 2], t[n + 3], t[n + 4], t[n + 5], t[n + 6], t[n + 7]);
    });
  });
}

void CheckMerge(const Place& place) {
  for (const AttentionMerge& op : {AttentionMerge{1, 1}, AttentionMerge{5, 64}, AttentionMerge{70, 7}}) {
    EachDType([&](DType dtype) {
      const DType statistics = StatisticsOf(dtype);
      // Two differences of lse up to 1, and what e^x makes of their loss; a sum of two products, or a log.
      constexpr double kLost = 16;
      Compare(place,
              {Read(Some(dtype, op.rows * op.head_size, 1)), Read(Some(statistics, op.rows, 2)),
               Updated(Some(dtype, op.rows * op.head_size, 3), kLost), Updated(Some(statistics, op.rows, 4), kLost)},
              &kernels::MergeAttention, &cuda::MergeAttention,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3]); });
    });
  }
}

}  // namespace

std::vector<Case> AttentionCases() {
  return {{"AttentionForward", CheckForward}, {"AttentionBackward", CheckBackward}, {"MergeAttention", CheckMerge}};
}

}  // namespace tidemark::kernels::cuda
