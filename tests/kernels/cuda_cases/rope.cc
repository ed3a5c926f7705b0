// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

struct Turned {
  HeadShape shape;
  std::int64_t last = 0;
};
const Turned kTurns[] = {{{0, 5, 2, 1, 4}},    {{1, 1, 1, 1, 2}},     {{2, 67, 4, 2, 6}},
                         {{3, 40, 1, 1, 128}}, {{2, 67, 4, 2, 7}, 4}, {{1, 40, 3, 0, 192}, 64}};
constexpr TokenPlaces kPlaces = {17, 30};

template <class Truth, class Tested>
void CheckTurns(const Place& place, Truth truth, Tested tested) {
  for (const Turned& turn : kTurns) {
    const HeadShape& shape = turn.shape;
    const Rope op{.shape = shape, .turned = turn.last, .theta = 500, .places = kPlaces};
    // The angle is a position times a power: at position p it loses 3 p; the truth's sines, made one from the other,
    // 32 times 2 more; the turn itself 3, of size 2. In fp32 the former are fp64's and vanish.
    const double lost = 3 * static_cast<double>(op.places.first + op.places.gap + shape.sequence) + 64 + 6;
    EachDType([&](DType dtype) {
      for (const bool packed : {false, true}) {
        const Operand q = Read(Some(dtype, packed ? shape.packed_elements() : shape.query_elements(), 1));
        const Operand k = Read(Some(dtype, packed ? shape.packed_elements() : shape.key_elements(), 2));
        const RopeTypes types = RopeOutputs(op, dtype);
        Compare(place, {q, k, Written(types.q, 2 * lost), Written(types.k, 2 * lost)}, truth, tested,
                [&](auto run, const Tensors& t) { run(op, t[0], t[packed ? 0 : 1], ConstTensor{}, t[2], t[3]); });
        if (!packed) {
          Compare(place, {Updated(q.numbers, 2 * lost), Updated(k.numbers, 2 * lost)}, truth, tested,
                  [&](auto run, const Tensors& t) { run(op, t[0], t[1], ConstTensor{}, t[0], t[1]); });
        }
      }
    });
  }
}

/// By the rows of a table, or of tokens: any numbers up to 1, which need be no cosines. A turn loses 3 roundings, of
/// size 2.
template <class Truth, class Tested>
void CheckReads(const Place& place, Rope::AnglesFrom from, Truth truth, Tested tested) {
  for (const Turned& turn : kTurns) {
    const HeadShape& shape = turn.shape;
    for (const RotaryLayout layout : {RotaryLayout::pairs, RotaryLayout::elements}) {
      const Rope op{.shape = shape, .turned = turn.last, .places = kPlaces, .angles_from = from, .layout = layout};
      const std::int64_t rows =
          from == Rope::AnglesFrom::rows ? shape.tokens() : kPlaces.first + kPlaces.gap + shape.sequence;
      EachDType([&](DType dtype) {
        const RopeTypes types = RopeOutputs(op, dtype);
        const Operand q = Read(Some(dtype, types.q.elements, 1)), k = Read(Some(dtype, types.k.elements, 2));
        const Operand angles = Read(Some(StatisticsOf(dtype), rows * op.Row().size(), 3));
        Compare(place, {q, k, angles, Written(types.q, 6), Written(types.k, 6)}, truth, tested,
                [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[3], t[4]); });
        Compare(place, {Updated(q.numbers, 6), Updated(k.numbers, 6), angles}, truth, tested,
                [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2], t[0], t[1]); });
      });
    }
  }
}

template <class Truth, class Tested>
std::function<void(const Place&)> Reads(Rope::AnglesFrom from, Truth truth, Tested tested) {
  return [=](const Place& place) { CheckReads(place, from, truth, tested); };
}

void CheckForward(const Place& place) { CheckTurns(place, &kernels::RopeForward, &cuda::RopeForward); }
void CheckBackward(const Place& place) { CheckTurns(place, &kernels::RopeBackward, &cuda::RopeBackward); }

}  // namespace

std::vector<Case> RopeCases() {
  using From = Rope::AnglesFrom;
  return {{"RopeForward", CheckForward},
          {"RopeBackward", CheckBackward},
          {"RopeForwardByTable", Reads(From::table, &kernels::RopeForward, &cuda::RopeForward)},
          {"RopeBackwardByTable", Reads(From::table, &kernels::RopeBackward, &cuda::RopeBackward)},
          {"RopeForwardByRows", Reads(From::rows, &kernels::RopeForward, &cuda::RopeForward)},
          {"RopeBackwardByRows", Reads(From::rows, &kernels::RopeBackward, &cuda::RopeBackward)}};
}

}  // namespace tidemark::kernels::cuda
