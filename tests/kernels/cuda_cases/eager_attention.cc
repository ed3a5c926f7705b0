// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_attention_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

constexpr HeadShape kShapes[] = {{.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 1},
                                 {.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 3},
                                 {.batch = 3, .sequence = 16, .heads = 2, .kv_heads = 2, .head_size = 8},
                                 {.batch = 1, .sequence = 67, .heads = 3, .kv_heads = 1, .head_size = 5}};

template <class Body>
void EachShape(Body body) {
  for (const HeadShape& shape : kShapes) {
    SCOPED_TRACE(std::to_string(shape.sequence) + " tokens");
    EachDType([&](DType dtype) { body(shape, dtype); });
  }
}

void CheckRepeat(const Place& place) {
  EachShape([&](const HeadShape& shape, DType dtype) {
    for (const std::int64_t elements : {shape.key_elements(), shape.packed_elements()}) {
      for (const HeadPart part : {HeadPart::key, HeadPart::value}) {
        Compare(place, {Read(Some(dtype, elements, 1)), Written(RepeatedOutput(shape, dtype), 0)},
                &kernels::RepeatHeads, &cuda::RepeatHeads,
                [&](auto run, const Tensors& t) { run(shape, part, t[0], t[1]); });
      }
    }
  });
}

void CheckSumRepeated(const Place& place) {
  EachShape([&](const HeadShape& shape, DType dtype) {
    const double group = static_cast<double>(shape.heads / shape.kv_heads);
    Compare(place,
            {Read(Some(dtype, shape.query_elements(), 1)), Written({dtype, shape.key_elements()}, group * group)},
            &kernels::SumRepeatedHeads, &cuda::SumRepeatedHeads,
            [&](auto run, const Tensors& t) { run(shape, t[0], t[1]); });
  });
}

void CheckMask(const Place& place) {
  EachShape([&](const HeadShape& shape, DType dtype) {
    const TensorType type = ScoresOutput(shape, dtype);
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{1}, shape.sequence / 2}) {
      Compare(place, {Read(Numbers::Random(type, 1)), Written(type, 0)}, &kernels::CausalMask, &cuda::CausalMask,
              [&](auto run, const Tensors& t) { run(shape, window, t[0], t[1]); });
    }
  });
}

template <class Body>
void EachMatrix(Body body) {
  for (const RowsOf& m : kMatrices) {
    SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
    EachDType([&](DType dtype) { body(m, dtype); });
  }
}

void CheckSoftmax(const Place& place) {
  EachMatrix([&](const RowsOf& m, DType dtype) {
    Numbers scores = Some(dtype, m.rows * m.width, 1);
    for (std::int64_t i = 2; i < scores.type().elements; i += 3) {  // of a row of one, and others: masked
      scores.Set(i, -std::numeric_limits<double>::infinity());
    }
    // exp(x - max), whose argument loses 2 and which loses 4 more; as much and the sum's in the sum; the quotient.
    Compare(place, {Read(scores), Written(scores.type(), SumLost(m.width) + 13)}, &kernels::Softmax, &cuda::Softmax,
            [&](auto run, const Tensors& t) { run(m.rows, m.width, t[0], t[1]); });
  });
}

void CheckSoftmaxGradient(const Place& place) {
  EachMatrix([&](const RowsOf& m, DType dtype) {
    const std::int64_t elements = m.rows * m.width;
    const double lost = (SumLost(m.width) + 4) * (static_cast<double>(m.width) + 1);
    Compare(place, {Read(Some(dtype, elements, 1)), Read(Some(dtype, elements, 2)), Written({dtype, elements}, lost)},
            &kernels::SoftmaxGradient, &cuda::SoftmaxGradient,
            [&](auto run, const Tensors& t) { run(m.rows, m.width, t[0], t[1], t[2]); });
  });
}

void CheckHeadsToTokens(const Place& place) {
  EachShape([&](const HeadShape& shape, DType dtype) {
    const TensorType type = RepeatedOutput(shape, dtype);
    Compare(place, {Read(Numbers::Random(type, 1)), Written(type, 0)}, &kernels::HeadsToTokens, &cuda::HeadsToTokens,
            [&](auto run, const Tensors& t) { run(shape, t[0], t[1]); });
  });
}

/// What a product reads: a score for each pair of tokens, a row for each query, or for each repeated key or value.
enum class Side { scores, queries, repeated };

std::int64_t ElementsOf(const HeadShape& shape, Side side, bool is_packed) {
  return side == Side::scores ? ScoresOutput(shape, DType::fp32).elements
         : is_packed          ? shape.packed_elements()
                              : shape.query_elements();
}

/// Of dense rows, and of a packed projection's where it has as many keys as queries; products of `depth`.
template <class Truth, class Tested>
void CheckProduct(const Place& place, Truth truth, Tested tested, Side a, Side b,
                  TensorType (*output)(const HeadShape&, DType), std::int64_t HeadShape::*depth) {
  EachShape([&](const HeadShape& shape, DType dtype) {
    for (const bool is_packed : {false, true}) {
      if (is_packed && shape.kv_heads != shape.heads) {
        continue;
      }
      const std::vector<Operand> operands = {Read(Some(dtype, ElementsOf(shape, a, is_packed), 1)),
                                             Read(Some(dtype, ElementsOf(shape, b, is_packed), 2)),
                                             Written(output(shape, dtype), ProductLost(shape.*depth))};
      Compare(place, operands, truth, tested, [&](auto run, const Tensors& t) { run(shape, t[0], t[1], t[2]); });
    }
  });
}

void CheckScores(const Place& place) {
  CheckProduct(place, &kernels::AttentionScores, &cuda::AttentionScores, Side::queries, Side::repeated, &ScoresOutput,
               &HeadShape::head_size);
}
void CheckContext(const Place& place) {
  CheckProduct(place, &kernels::AttentionContext, &cuda::AttentionContext, Side::scores, Side::repeated,
               &RepeatedOutput, &HeadShape::sequence);
}
void CheckWeightsGradient(const Place& place) {
  CheckProduct(place, &kernels::WeightsGradient, &cuda::WeightsGradient, Side::queries, Side::repeated, &ScoresOutput,
               &HeadShape::head_size);
}
void CheckValueGradient(const Place& place) {
  CheckProduct(place, &kernels::ValueGradient, &cuda::ValueGradient, Side::scores, Side::queries, &RepeatedOutput,
               &HeadShape::sequence);
}
void CheckQueryGradient(const Place& place) {
  CheckProduct(place, &kernels::QueryGradient, &cuda::QueryGradient, Side::scores, Side::repeated, &RepeatedOutput,
               &HeadShape::sequence);
}
void CheckKeyGradient(const Place& place) {
  CheckProduct(place, &kernels::KeyGradient, &cuda::KeyGradient, Side::scores, Side::queries, &RepeatedOutput,
               &HeadShape::sequence);
}

}  // namespace

std::vector<Case> EagerAttentionCases() {
  return {{"RepeatHeads", CheckRepeat},
          {"SumRepeatedHeads", CheckSumRepeated},
          {"AttentionScores", CheckScores},
          {"CausalMask", CheckMask},
          {"Softmax", CheckSoftmax},
          {"SoftmaxGradient", CheckSoftmaxGradient},
          {"AttentionContext", CheckContext},
          {"HeadsToTokens", CheckHeadsToTokens},
          {"WeightsGradient", CheckWeightsGradient},
          {"ValueGradient", CheckValueGradient},
          {"QueryGradient", CheckQueryGradient},
          {"KeyGradient", CheckKeyGradient}};
}

}  // namespace tidemark::kernels::cuda
