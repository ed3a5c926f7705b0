// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/rotary_angle.cuh"
#include "kernels/rotary_table_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// A pair of one place.
template <class C>
struct FillPair {
  RotaryTable op;
  Output<C> table;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t half = op.turned / 2, place = i / half, pair = i % half;
    const RotaryRow row = op.Row();
    const double angle = RotaryAngle(op.theta, op.turned, place, pair);
    const C cosine = static_cast<C>(std::cos(angle)), sine = static_cast<C>(std::sin(angle));
    for (std::int64_t copy = 0; copy < row.copies(); ++copy) {
      const std::int64_t begin = place * row.size() + copy * half;
      table.Set(begin + row.CosineOf(pair), cosine);
      table.Set(begin + row.SineOf(pair), sine);
    }
  }
};

template <class C>
struct TakeRow {
  RotaryRows op;
  Input<C> table;
  Output<C> rows;

  __host__ __device__ void operator()(const Team& team, std::int64_t token) const {
    const std::int64_t size = op.table.RowSize(), begin = token * size, from = op.PlaceOf(token) * size;
    team.Each(begin, begin + size, [&](auto at) { rows.Set(at, table[at - begin + from]); });
  }
};

}  // namespace

void FillRotaryTable(const RotaryTable& op, const Tensor& table, const Queue& queue) {
  TIDEMARK_CHECK(op.turned % 2 == 0 && table.type == RotaryTableType(op, table.type.dtype));
  InArithmeticOf({table.type}, [&]<class C>(C) {
    EachElement(queue, op.positions * op.turned / 2, FillPair<C>{op, table});
  });
}

void TakeRotaryRows(const RotaryRows& op, const ConstTensor& table, const Tensor& rows, const Queue& queue) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.table.positions);
  TIDEMARK_CHECK(table.type == RotaryTableType(op.table, table.type.dtype));
  TIDEMARK_CHECK(rows.type == RotaryRowsOutput(op, table.type.dtype));
  InArithmeticOf({table.type}, [&]<class C>(C) { EachRow(queue, op.tokens, TakeRow<C>{op, table, rows}); });
}

}  // namespace tidemark::kernels::cuda
