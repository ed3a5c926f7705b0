// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/category.h"
#include "base/dtype.h"

namespace tidemark::names_test {
namespace {

constexpr DType kDTypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32, DType::u8};

TEST(DType, NamesParseBack) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(ParseDType(Name(dtype)), dtype) << Name(dtype);
  }
  EXPECT_EQ(Name(DType::bf16), "bf16");
  EXPECT_EQ(ParseDType("bfloat16"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
}

TEST(DType, SizesAreTheBitsOfTheName) {
  const std::int64_t bits[] = {64, 32, 16, 16, 64, 32, 8};
  for (std::size_t i = 0; i < std::size(kDTypes); ++i) {
    EXPECT_EQ(8 * SizeOf(kDTypes[i]), Bytes(bits[i])) << Name(kDTypes[i]);
  }
}

TEST(Category, NamesAreThoseOfTheReportsInTheirOrder) {
  const std::string names[] = {"parameter", "gradient", "accumulator",          "optimizer", "activation", "tp_gather",
                               "bucket",    "logits",   "representation_cache", "rng",       "workspace",  "input",
                               "unknown"};
  ASSERT_EQ(std::size(names), kCategories);
  for (std::size_t i = 0; i < kCategories; ++i) {
    EXPECT_EQ(Name(static_cast<Category>(i)), names[i]);
    EXPECT_EQ(ParseCategory(names[i]), static_cast<Category>(i));
  }
  EXPECT_EQ(ParseCategory("weights"), std::nullopt);
}

TEST(CategoryBytes, AddUpAndScaleByCategory) {
  CategoryBytes bytes;
  EXPECT_EQ(bytes.Total(), Bytes(0));
  bytes[Category::parameter] += Bytes(5);
  bytes[Category::input] += Bytes(2);
  CategoryBytes other;
  other[Category::parameter] = Bytes(10);
  const CategoryBytes sum = (bytes + other) * 3;
  EXPECT_EQ(sum[Category::parameter], Bytes(45));
  EXPECT_EQ(sum[Category::input], Bytes(6));
  EXPECT_EQ(sum[Category::gradient], Bytes(0));
  EXPECT_EQ(sum.Total(), Bytes(51));
  EXPECT_NE(sum, bytes);
}

}  // namespace
}  // namespace tidemark::names_test
