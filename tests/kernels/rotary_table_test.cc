// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/rope.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::rotary_table_test {
namespace {

constexpr RotaryLayout kLayouts[] = {RotaryLayout::pairs, RotaryLayout::elements};

Numbers TableOf(const RotaryTable& op, DType dtype) {
  Numbers table(RotaryTableType(op, dtype));
  FillRotaryTable(op, table);
  return table;
}

Numbers RowsOf(const RotaryRows& op, const Numbers& table) {
  Numbers rows(RotaryRowsOutput(op, table.type().dtype));
  TakeRotaryRows(op, table, rows);
  return rows;
}

// As ComplexRoPE.cache is torch.polar(1, outer(places, frequencies)), a pair's numbers beside each other, and
// CosSinRoPE.cache cat(cos, sin) of cat(angles, angles).
TEST(RotaryTable, HoldsTheCosinesAndSinesOfEachPlace) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    const RotaryTable pairs{.positions = 100'001, .turned = 6, .theta = 500'000};
    RotaryTable elements = pairs;
    elements.layout = RotaryLayout::elements;
    const Numbers by_pair = TableOf(pairs, dtype), by_element = TableOf(elements, dtype);
    ASSERT_EQ(by_pair.type().elements, 100'001 * 6);
    ASSERT_EQ(by_element.type().elements, 100'001 * 12);
    for (const std::int64_t place : {0, 1, 2, 4097, 100'000}) {
      // A power loses 2 roundings, its product with a place one more, a cosine 2; then that of the dtype.
      const double bound = (3 * static_cast<double>(place) + 2) * 0x1p-53 + UnitRoundoff(dtype);
      for (std::int64_t pair = 0; pair < 3; ++pair) {
        const long double angle =
            static_cast<long double>(place) / std::pow(500'000.0L, static_cast<long double>(pair) / 3);
        const double cosine = static_cast<double>(std::cos(angle)), sine = static_cast<double>(std::sin(angle));
        EXPECT_NEAR(by_pair[place * 6 + 2 * pair], cosine, bound);
        EXPECT_NEAR(by_pair[place * 6 + 2 * pair + 1], sine, bound);
        for (const std::int64_t element : {pair, pair + 3}) {
          EXPECT_NEAR(by_element[place * 12 + element], cosine, bound);
          EXPECT_NEAR(by_element[place * 12 + 6 + element], sine, bound);
        }
      }
    }
  }
}

// By hand: of 4 elements and a theta of 10000 the frequencies are 1 and 1 / 100, so that place 100 turns the second
// pair by 1, as place 1 does the first. cos 1 = 0.540302305868139717..., sin 1 = 0.841470984807896506...
TEST(RotaryTable, TurnsByNothingAtPlaceNoneAndByOneWhereThatIsTheAngle) {
  constexpr double kCosine = 0.540302305868139717, kSine = 0.841470984807896506;
  const Numbers pairs = TableOf({.positions = 101, .turned = 4}, DType::fp64);
  const Numbers elements = TableOf({.positions = 101, .turned = 4, .layout = RotaryLayout::elements}, DType::fp64);
  for (const std::int64_t i : {0, 1, 2, 3}) {
    EXPECT_EQ(pairs[i], i % 2 == 0 ? 1 : 0);
    EXPECT_EQ(elements[i], 1);
    EXPECT_EQ(elements[4 + i], 0);
  }
  EXPECT_NEAR(pairs[4], kCosine, 1e-15);
  EXPECT_NEAR(pairs[5], kSine, 1e-15);
  EXPECT_NEAR(pairs[400 + 2], kCosine, 1e-15);
  EXPECT_NEAR(pairs[400 + 3], kSine, 1e-15);
  EXPECT_NEAR(elements[8 + 2], kCosine, 1e-15);
  EXPECT_NEAR(elements[8 + 4], kSine, 1e-15);
  EXPECT_NEAR(elements[800 + 1], kCosine, 1e-15);
  EXPECT_NEAR(elements[800 + 7], kSine, 1e-15);
}

void ExpectRowsOfPlaces(const RotaryRows& op, const std::vector<std::int64_t>& places) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    const Numbers table = Numbers::Random(RotaryTableType(op.table, dtype), 1), rows = RowsOf(op, table);
    const std::int64_t size = op.table.RowSize();
    ASSERT_EQ(rows.type().elements, std::ssize(places) * size);
    for (std::int64_t i = 0; i < rows.type().elements; ++i) {
      ASSERT_EQ(rows[i], table[places[static_cast<std::size_t>(i / size)] * size + i % size]) << i;
    }
  }
}

TEST(RotaryTable, GivesEachTokenTheRowOfItsPlace) {
  for (const RotaryLayout layout : kLayouts) {
    const RotaryTable table{.positions = 40, .turned = 4, .layout = layout};
    // Two sequences of five.
    ExpectRowsOfPlaces({.table = table, .tokens = 10, .sequence = 5}, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
    // Of 40 places in 10 stretches a ring of five gives its second rank the second from either end, 4 to 7 and 32
    // to 35.
    ExpectRowsOfPlaces({.table = table, .tokens = 16, .sequence = 8, .places = {4, 24}},
                       {4, 5, 6, 7, 32, 33, 34, 35, 4, 5, 6, 7, 32, 33, 34, 35});
  }
}

TEST(RotaryTable, TurnsHeadsAsAnglesThatAreComputedDo) {
  const Rope whole{
      .shape = {.batch = 2, .sequence = 70, .heads = 2, .kv_heads = 1, .head_size = 6}, .theta = 100, .places = {3, 7}};
  Rope of_part = whole;
  of_part.turned = 4;
  for (const Rope& computed : {whole, of_part}) {
    for (const RotaryLayout layout : kLayouts) {
      const RotaryTable table{.positions = 90, .turned = computed.TurnedSize(), .layout = layout, .theta = 100};
      const RotaryRows rows{.table = table, .tokens = 140, .sequence = 70, .places = computed.places};
      for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
        const Numbers q = Numbers::Random({dtype, computed.shape.query_elements()}, 1);
        const Numbers k = Numbers::Random({dtype, computed.shape.key_elements()}, 2);
        const Numbers angles = TableOf(table, StatisticsOf(dtype)), token_angles = RowsOf(rows, angles);
        Rope by_table = computed, by_rows = computed;
        by_table.angles_from = Rope::AnglesFrom::table;
        by_rows.angles_from = Rope::AnglesFrom::rows;
        by_table.layout = by_rows.layout = layout;
        for (const auto run : {&RopeForward, &RopeBackward}) {
          Numbers q0(q.type()), k0(k.type()), q1(q.type()), k1(k.type()), q2 = q, k2 = k;
          run(computed, q, k, {}, q0, k0);
          run(by_table, q, k, angles, q1, k1);
          run(by_rows, q2, k2, token_angles, q2, k2);
          EXPECT_EQ(q1.bytes(), q2.bytes());
          EXPECT_EQ(k1.bytes(), k2.bytes());
          // Sines that are made one from the other are other by up to 1e-12, which may be a last bit of each: 2 of
          // these, and of either way's 3 roundings of size 2 half of a bit each.
          const double bound = dtype == DType::fp64 ? 1e-12 : 1e-12 + (2 + 6) * UnitRoundoff(dtype);
          ExpectNear(q1, q0.values(), bound);
          ExpectNear(k1, k0.values(), bound);
          EXPECT_NE(q1.bytes(), q.bytes());
        }
      }
    }
  }
}

TEST(RotaryTable, TurnsBackByTheSameRows) {
  for (const RotaryLayout layout : kLayouts) {
    const RotaryTable table{.positions = 30, .turned = 4, .layout = layout};
    const Rope op{.shape = {.batch = 1, .sequence = 30, .heads = 3, .kv_heads = 1, .head_size = 7},
                  .turned = 4,
                  .angles_from = Rope::AnglesFrom::table,
                  .layout = layout};
    const Numbers q = Numbers::Random({DType::fp64, op.shape.query_elements()}, 1);
    const Numbers k = Numbers::Random({DType::fp64, op.shape.key_elements()}, 2);
    const Numbers angles = TableOf(table, DType::fp64);
    Numbers q2 = q, k2 = k;
    RopeForward(op, q2, k2, angles, q2, k2);
    RopeBackward(op, q2, k2, angles, q2, k2);
    // Two turns, of 3 roundings of size 2 each, by a cosine and a sine that are rounded.
    ExpectNear(q2, q.values(), 16 * 0x1p-53);
    ExpectNear(k2, k.values(), 16 * 0x1p-53);
  }
}

TEST(RotaryTableDeathTest, RefusesRowsOfAnotherSize) {
  const RotaryTable table{.positions = 8, .turned = 4};
  const Numbers angles = TableOf(table, DType::fp32);
  Numbers q(TensorType{DType::fp32, 8 * 4}), k(TensorType{DType::fp32, 0});
  Rope op{.shape = {.batch = 1, .sequence = 8, .heads = 1, .kv_heads = 0, .head_size = 4}};
  EXPECT_DEATH(RopeForward(op, q, k, angles, q, k), "AreAnglesOf");  // which it does not read
  op.angles_from = Rope::AnglesFrom::rows;
  EXPECT_DEATH(RopeForward(op, q, k, {}, q, k), "AreAnglesOf");
  op.angles_from = Rope::AnglesFrom::table;
  op.places.first = 1;  // its last token is at place 8, behind the table
  EXPECT_DEATH(RopeForward(op, q, k, angles, q, k), "AreAnglesOf");
  Numbers rows(TensorType{DType::fp32, 8 * 4});
  EXPECT_DEATH(TakeRotaryRows({.table = table, .tokens = 8, .sequence = 8, .places = {1, 0}}, angles, rows),
               "positions");
}

}  // namespace
}  // namespace tidemark::kernels::rotary_table_test
