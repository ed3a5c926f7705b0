// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary_table_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// One pair, rows of no whole number of packs, and more places than a block has threads.
template <class Body>
void EachTable(Body body) {
  for (const RotaryLayout layout : {RotaryLayout::pairs, RotaryLayout::elements}) {
    for (const RotaryTable& op :
         {RotaryTable{1, 2, layout}, RotaryTable{300, 6, layout, 500}, RotaryTable{41, 128, layout}}) {
      SCOPED_TRACE(std::to_string(op.positions) + " rows of " + std::to_string(op.RowSize()));
      EachDType([&](DType dtype) { body(op, dtype); });
    }
  }
}

void CheckFill(const Place& place) {
  EachTable([&](const RotaryTable& op, DType dtype) {
    // The angle is a place times a power: at place p it loses 3 p; a cosine 2 more. In fp32 these are fp64's and
    // vanish.
    const double lost = dtype == DType::fp64 ? 3 * static_cast<double>(op.positions) + 2 : 1;
    Compare(place, {Written(RotaryTableType(op, dtype), lost)}, &kernels::FillRotaryTable, &cuda::FillRotaryTable,
            [&](auto run, const Tensors& t) { run(op, t[0]); });
  });
}

void CheckTake(const Place& place) {
  EachTable([&](const RotaryTable& table, DType dtype) {
    // Of no token, of a row of places, and of two stretches of one.
    const std::int64_t last = table.positions - 1, sequence = last / 2 + 1;
    for (const RotaryRows& op : {RotaryRows{table, 0, sequence}, RotaryRows{table, 2 * sequence, sequence},
                                 RotaryRows{table, 2 * sequence, sequence, {0, last + 1 - sequence}}}) {
      const std::vector<Operand> operands = {Read(Some(dtype, table.positions * table.RowSize(), 1)),
                                             Written(RotaryRowsOutput(op, dtype), 0)};
      Compare(place, operands, &kernels::TakeRotaryRows, &cuda::TakeRotaryRows,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
    }
  });
}

}  // namespace

std::vector<Case> RotaryTableCases() { return {{"FillRotaryTable", CheckFill}, {"TakeRotaryRows", CheckTake}}; }

}  // namespace tidemark::kernels::cuda
