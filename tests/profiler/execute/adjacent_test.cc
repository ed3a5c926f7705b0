// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/adjacent.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/queue.h"
#include "profiler/execute/moved_part.h"
#include "profiler/execute/updated_piece.h"

namespace tidemark::adjacent_test {
namespace {

using kernels::ConstTensor;
using kernels::Slice;
using kernels::Tensor;

class Adjacent : public testing::Test {
 protected:
  std::array<float, 64> numbers_{};
  Tensor all_{{DType::fp32, 64}, numbers_.data()};
};

TEST_F(Adjacent, OneBeginsWhereTheOtherEnds) {
  EXPECT_TRUE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 8, 3)));
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 9, 3)));  // a gap
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 7, 3)));  // both have the eighth
  EXPECT_FALSE(AreAdjacent(Slice(all_, 8, 3), Slice(all_, 0, 8)));  // the wrong way round
  const Tensor of_16_bits{{DType::bf16, 8}, numbers_.data() + 8};
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), of_16_bits));
  const Tensor without_data{{DType::fp32, 0}, nullptr};
  EXPECT_FALSE(AreAdjacent(without_data, without_data));
}

TEST_F(Adjacent, PartsOfOneOperandInARowAreMovedAtOnce) {
  const auto part = [&](std::int64_t begin, std::int64_t elements, std::int64_t to, std::size_t read = 0,
                        std::size_t write = 0) {
    return MovedPart{Slice(static_cast<ConstTensor>(all_), begin, elements), read, write, to};
  };
  const std::vector<MovedPart> joined = Joined<MovedPart>({part(0, 8, 3), part(8, 1, 11), part(9, 7, 12)});
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_EQ(joined[0].from.data, numbers_.data());
  EXPECT_EQ(joined[0].from.type.elements, 16);
  EXPECT_EQ(joined[0].offset, 3);
  EXPECT_EQ(Joined<MovedPart>({part(0, 8, 0), part(9, 8, 8)}).size(), 2U);  // a gap in what is read
  EXPECT_EQ(Joined<MovedPart>({part(0, 8, 0), part(8, 8, 9)}).size(), 2U);  // one in what is written
  EXPECT_EQ(Joined<MovedPart>({part(8, 8, 8), part(0, 8, 0)}).size(), 2U);  // the wrong way round
  EXPECT_EQ(Joined<MovedPart>({part(0, 8, 0), part(8, 8, 8, 1)}).size(),
            2U);  // another operand, which is its neighbour
  EXPECT_EQ(Joined<MovedPart>({part(0, 8, 0), part(8, 8, 8, 0, 1)}).size(), 2U);  // the same of what is written
  EXPECT_TRUE(Joined<MovedPart>({}).empty());
}

/// Whether all are one kernel on a GPU: they are given to a queue in which they wait for each other.
bool AreTogether(const std::vector<MovedPart>& parts) {
  bool are_together = true;
  int moved = 0;
  kernels::Queue queue;
  queue.kind = kernels::Queue::Kind::host;
  MovedParts(parts).Each(queue, [&](const kernels::Queue& on_queue, const MovedPart&) {
    are_together = are_together && on_queue.together != nullptr;
    ++moved;
  });
  EXPECT_EQ(moved, static_cast<int>(parts.size()));
  return are_together;
}

// Two sums that go to the same numbers must not be formed at once.
TEST_F(Adjacent, PartsAreOneKernelUnlessTwoWriteTheSameNumbers) {
  const auto part = [&](std::int64_t begin, std::int64_t to, std::size_t write = 0) {
    return MovedPart{Slice(static_cast<ConstTensor>(all_), begin, 8), static_cast<std::size_t>(begin), write, to};
  };
  EXPECT_TRUE(AreTogether({part(16, 16), part(0, 0), part(32, 8)}));
  EXPECT_FALSE(AreTogether({part(0, 0), part(16, 16), part(32, 0)}));
  EXPECT_FALSE(AreTogether({part(0, 7), part(16, 0)}));  // the eighth of one is the first of the other
  EXPECT_TRUE(AreTogether({part(0, 0), part(16, 0, 1)}));
}

/// Of 64 numbers each: gradients, weights, copies of these, and two moments.
class AdjacentUpdates : public testing::Test {
 protected:
  UpdatedPiece PieceAt(std::int64_t begin, std::int64_t elements) {
    UpdatedPiece piece;
    piece.source = Slice(static_cast<ConstTensor>(All(0)), begin, elements);
    piece.updated = Slice(All(1), begin, elements);
    piece.copies = {Slice(All(2), begin, elements)};
    piece.moments = {Slice(All(3), begin, elements), Slice(All(4), begin, elements)};
    for (const auto& of : numbers_) {
      piece.memory.push_back(of.data());
    }
    return piece;
  }
  Tensor All(std::size_t of) { return {{DType::fp32, 64}, numbers_[of].data()}; }
  static std::size_t Updates(const UpdatedPiece& first, const UpdatedPiece& second) {
    return Joined<UpdatedPiece>({first, second}).size();
  }

  std::array<std::array<float, 64>, 5> numbers_{};
};

TEST_F(AdjacentUpdates, AreOneWhereEverythingLiesInARow) {
  const std::vector<UpdatedPiece> joined = Joined<UpdatedPiece>({PieceAt(0, 8), PieceAt(8, 3), PieceAt(11, 5)});
  ASSERT_EQ(joined.size(), 1U);
  for (const std::int64_t elements :
       {joined[0].source.type.elements, joined[0].updated.type.elements, joined[0].copies[0].type.elements,
        joined[0].moments[0].type.elements, joined[0].moments[1].type.elements}) {
    EXPECT_EQ(elements, 16);
  }
}

TEST_F(AdjacentUpdates, StayApartWhereOneOfTheirTensorsDoesNot) {
  const UpdatedPiece first = PieceAt(0, 8), second = PieceAt(8, 8);
  ASSERT_EQ(Updates(first, second), 1U);
  const std::vector<void (*)(UpdatedPiece&)> changes = {
      [](UpdatedPiece& piece) { piece.source = Slice(piece.source, 1, 7); },
      [](UpdatedPiece& piece) { piece.updated = Slice(piece.updated, 1, 7); },
      [](UpdatedPiece& piece) { piece.copies[0] = Slice(piece.copies[0], 1, 7); },
      [](UpdatedPiece& piece) { piece.copies.clear(); },
      [](UpdatedPiece& piece) { piece.moments[0] = Slice(piece.moments[0], 1, 7); },
      [](UpdatedPiece& piece) { piece.moments[1] = Slice(piece.moments[1], 1, 7); },
      [](UpdatedPiece& piece) { piece.memory[4] = nullptr; },
      [](UpdatedPiece& piece) { piece.weights = piece.source; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    UpdatedPiece changed = second;
    changes[i](changed);
    EXPECT_EQ(Updates(first, changed), 2U) << i;
  }
}

}  // namespace
}  // namespace tidemark::adjacent_test
