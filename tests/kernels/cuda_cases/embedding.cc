// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding_cuda.h"

#include "tests/kernels/cuda_cases/operators.h"

namespace tidemark::kernels::cuda {
namespace {

/// Ids of which a few come often, some never, and some are another rank's.
Numbers SomeIds(std::int64_t tokens, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) {
    ids.push_back(i % 3 == 0 ? 5 : i * i % (vocabulary + 4) + 2);
  }
  return Numbers::Integers(ids);
}

/// Rows are tokens: none, one, more than a block looks through at once, more columns than it has threads, and more than
/// these have packs.
template <class Body>
void EachEmbedding(Body body) {
  for (const RowsOf& m :
       {RowsOf{0, 3}, RowsOf{1, 1}, RowsOf{300, 3}, RowsOf{520, 1}, RowsOf{20, 300}, RowsOf{3, 2077}}) {
    SCOPED_TRACE(std::to_string(m.rows) + " rows of " + std::to_string(m.width));
    EachDType([&](DType dtype) { body(m, dtype); });
  }
}

void CheckForward(const Place& place) {
  EachEmbedding([&](const RowsOf& m, DType dtype) {
    const Embedding op{.tokens = m.rows, .width = m.width, .vocabulary = 29, .first_row = 4};
    const std::vector<Operand> operands = {Read(SomeIds(op.tokens, op.vocabulary)),
                                           Read(Some(dtype, op.vocabulary * op.width, 1)),
                                           Written(EmbeddingOutput(op, dtype), 0)};
    Compare(place, operands, &kernels::EmbeddingForward, &cuda::EmbeddingForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckBackward(const Place& place) {
  EachEmbedding([&](const RowsOf& m, DType dtype) {
    for (const bool accumulate : {false, true}) {
      const Embedding op{
          .tokens = m.rows, .width = m.width, .vocabulary = 29, .first_row = 4, .accumulate = accumulate};
      const double tokens = static_cast<double>(op.tokens);  // of one id at most: as many sums, of at most that size
      const std::vector<Operand> operands = {Read(SomeIds(op.tokens, op.vocabulary)),
                                             Read(Some(dtype, op.tokens * op.width, 1)),
                                             Updated(Some(dtype, op.vocabulary * op.width, 2), tokens * (tokens + 1))};
      Compare(place, operands, &kernels::EmbeddingBackward, &cuda::EmbeddingBackward,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
    }
  });
}

Positions PositionsFor(const RowsOf& m) {
  return {.rows = m.rows, .width = m.width, .sequence = 11, .positions = 17, .first_row = 8, .places = {2, 4}};
}

void CheckPositionsForward(const Place& place) {
  EachEmbedding([&](const RowsOf& m, DType dtype) {
    const Positions op = PositionsFor(m);
    const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.width, 1)),
                                           Read(Some(dtype, op.positions * op.width, 2)),
                                           Written(PositionsOutput(op, dtype), 2)};
    Compare(place, operands, &kernels::PositionsForward, &cuda::PositionsForward,
            [&](auto run, const Tensors& t) { run(op, t[0], t[1], t[2]); });
  });
}

void CheckPositionsBackward(const Place& place) {
  EachEmbedding([&](const RowsOf& m, DType dtype) {
    for (const bool accumulate : {false, true}) {
      Positions op = PositionsFor(m);
      op.accumulate = accumulate;
      const double rows = static_cast<double>(op.rows / op.sequence + 1);
      const std::vector<Operand> operands = {Read(Some(dtype, op.rows * op.width, 1)),
                                             Updated(Some(dtype, op.positions * op.width, 2), rows * (rows + 1))};
      Compare(place, operands, &kernels::PositionsBackward, &cuda::PositionsBackward,
              [&](auto run, const Tensors& t) { run(op, t[0], t[1]); });
    }
  });
}

}  // namespace

std::vector<Case> EmbeddingCases() {
  return {{"EmbeddingForward", CheckForward},
          {"EmbeddingBackward", CheckBackward},
          {"PositionsForward", CheckPositionsForward},
          {"PositionsBackward", CheckPositionsBackward}};
}

}  // namespace tidemark::kernels::cuda
